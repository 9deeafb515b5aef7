"""The work that the shop does later. A worker runs it: `towpath worker`."""

import csv
from pathlib import Path
from typing import Final

from sqlalchemy import func, select

from shop import providers
from shop.models import UNPAID, URL, Database, Order, move
from towpath import App, Backoff, Cancel, Context, Limit, group

FILES: Final = Path("files")

app = App(URL)


@app.task(
    limit=Limit("payments", rate="10/s", burst=5),  # what the provider allows, for all workers
    dont_retry_on=providers.CardDeclined,  # any other error is retried
    max_retries=5,
    backoff=Backoff.exponential("5s", 3),
)
def charge(order_id: int) -> str:
    with Database() as session:
        order = session.get_one(Order, order_id)
    if order.state == "cancelled":
        raise Cancel
    try:
        payment = providers.take_payment(order.card, order.cents, idempotency_key=str(order_id))
    except providers.CardDeclined:
        with Database.begin() as session:
            move(session, order_id, UNPAID, "declined")
        raise
    with Database.begin() as session:
        # The order is paid and its flow is stored, or neither; a second run stores no second flow.
        if move(session, order_id, UNPAID, "paid"):
            documents = group(make_invoice.s(order_id), make_packing_slip.s(order_id))
            documents.then(ship.s(order_id=order_id)).enqueue(connection=session)
        is_cancelled = session.get_one(Order, order_id).state == "cancelled"
    if is_cancelled:  # while the provider worked
        providers.refund(payment)
        raise Cancel
    return payment


@app.task()
def send_receipt(ctx: Context, payment: str, order_id: int) -> None:
    ctx.log(f"mailed: order {order_id} is paid by {payment}")


@app.task()
def cancel_if_unpaid(order_id: int) -> None:
    with Database.begin() as session:
        move(session, order_id, UNPAID, "cancelled")


# Both lie in one topic: `towpath topics pause documents` stops both while the printer is repaired.
@app.task(topic="documents")
def make_invoice(order_id: int) -> str:
    with Database() as session:
        order = session.get_one(Order, order_id)
    return write(f"invoice-{order_id}.txt", f"1 {order.item}: {order.cents / 100:.2f}\n")


@app.task(topic="documents")
def make_packing_slip(order_id: int) -> str:
    with Database() as session:
        order = session.get_one(Order, order_id)
    return write(f"slip-{order_id}.txt", f"1 {order.item}\n")


@app.task(retry_on=ConnectionError)  # any other error is a mistake of ours, and fails at once
def ship(ctx: Context, documents: list[str], order_id: int) -> str:
    ctx.log(f"enclosed: {', '.join(documents)}")
    parcel = providers.book_parcel(idempotency_key=str(order_id))
    with Database.begin() as session:
        move(session, order_id, ["paid"], "shipped", parcel=parcel)
    return parcel


# In a process of its own: a report that needs too much memory or time harms no other job.
@app.schedule("0 2 * * *", tz="Europe/Zurich")
@app.task(sandbox=True, memory="512MiB", timeout="5m")
def report_sales(ctx: Context) -> str:
    FILES.mkdir(exist_ok=True)
    with Database() as session, (FILES / "sales.csv").open("w", newline="") as file:
        total = session.scalar(select(func.count(Order.id))) or 0
        rows = csv.writer(file)
        for done, order in enumerate(session.scalars(select(Order).order_by(Order.id)), start=1):
            rows.writerow([order.id, order.item, order.cents, order.state])
            ctx.progress(done / total, f"order {order.id}")
    return str(FILES / "sales.csv")


def write(name: str, text: str) -> str:
    FILES.mkdir(exist_ok=True)
    (FILES / name).write_text(text)
    return str(FILES / name)
