"""SQLAlchemy: an order and the job that checks its payment, in one transaction.

pip install towpath 'sqlalchemy[asyncio]' aiosqlite
python sqlalchemy_orders.py
"""

import asyncio

from sqlalchemy import create_engine, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from towpath import App

app = App("sqlite:///orders.db")
engine = create_engine("sqlite:///orders.db")
async_engine = create_async_engine("sqlite+aiosqlite:///orders.db")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@app.task()
def check_payment(order: int) -> None:
    print("checking the payment of order", order)


def place_order(item: str) -> int:
    """Both are stored, or neither."""
    with Session(engine) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()  # gives it its id
        check_payment.using(connection=session, delay="15m").enqueue(order.id)
        if item == "nothing":
            raise ValueError("there is nothing to order")
        return order.id


async def aplace_order(item: str) -> int:
    """The same in an event loop."""
    async with AsyncSession(async_engine) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        await session.flush()
        await check_payment.using(connection=session, delay="15m").aenqueue(order.id)
        return order.id


def main() -> None:
    Base.metadata.create_all(engine)
    placed = [place_order("rope"), asyncio.run(aplace_order("anchor"))]
    try:
        place_order("nothing")
    except ValueError as error:
        print("refused:", error)
    with Session(engine) as session:
        orders = [order.id for order in session.scalars(select(Order))]
    checks = [job.payload["order"] for job in app.jobs.list(topic="check_payment")]
    print("orders", orders, "checks", sorted(checks))
    assert set(placed) <= set(orders) == set(checks)


if __name__ == "__main__":
    main()
