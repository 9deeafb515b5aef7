"""What the shop stores. Towpath keeps its jobs in the same database, in tables of its own."""

import os
from collections.abc import Collection
from typing import Final, Literal

from sqlalchemy import String, create_engine, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

URL: Final = os.environ.get("DATABASE_URL", "sqlite:///shop.db")  # or postgresql+psycopg://…

Database = sessionmaker(create_engine(URL))
State = Literal["placed", "declined", "paid", "shipped", "cancelled"]
UNPAID: Final[Collection[State]] = ("placed", "declined")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    cents: Mapped[int]
    card: Mapped[str]  # a token of the payment provider, never the number itself
    state: Mapped[State] = mapped_column(String, default="placed")
    parcel: Mapped[str | None]


def move(
    session: Session, order_id: int, before: Collection[State], after: State, **values: str
) -> bool:
    """Move an order on, unless it has left these states: a job may run twice, or too late."""
    moving = update(Order).where(Order.id == order_id, Order.state.in_(before))
    return bool(session.scalar(moving.values(state=after, **values).returning(Order.id)))
