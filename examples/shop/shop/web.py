"""The shop's HTTP API: `uvicorn shop.web:api`."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, PositiveInt

from shop.models import Base, Database, Order, State
from shop.tasks import app, cancel_if_unpaid, charge, report_sales, send_receipt
from towpath.errors import NotFound
from towpath.integrations.starlette import lifespan
from towpath.server import Api


class NewOrder(BaseModel):
    item: str
    cents: PositiveInt
    card: str


class OrderOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int
    item: str
    state: State
    parcel: str | None


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncGenerator[None]:
    with Database.begin() as session:
        Base.metadata.create_all(session.connection())
    yield


# While you develop, the worker runs in here; in production, `towpath worker` runs beside.
api = FastAPI(lifespan=lifespan(app, tables, worker=os.environ.get("SHOP_WORKER") != "apart"))
api.mount("/queue", Api(app))  # for callers with a key


@api.post("/orders", status_code=201)
def place_order(new: NewOrder) -> OrderOut:
    with Database.begin() as session:  # the order and its jobs are stored, or neither
        order = Order(**new.model_dump())
        session.add(order)
        session.flush()  # gives it its id
        paying = charge.s(order.id) | send_receipt.s(order_id=order.id)
        paying.enqueue(connection=session)
        cancel_if_unpaid.using(delay="15m", connection=session).enqueue(order.id)
        return OrderOut.model_validate(order)


@api.get("/orders/{id}")
def read_order(id: int) -> OrderOut:
    with Database() as session:
        order = session.get(Order, id)
    if order is None:
        raise HTTPException(404)
    return OrderOut.model_validate(order)


@api.post("/reports", status_code=202)
def order_report() -> dict[str, Any]:
    job = report_sales.using(key="sales").enqueue()  # if one is waiting, that one
    return {"id": job.id}


@api.get("/reports/{id}")
def read_report(id: UUID) -> dict[str, Any]:
    try:
        job = app.jobs.get(id)
    except NotFound as error:
        raise HTTPException(404) from error
    return {"status": job.status, "progress": job.progress, "file": job.returned}
