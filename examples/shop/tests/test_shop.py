"""`pytest`: no server, no worker, no sleep. A test runs the jobs itself and moves the clock."""

from http import HTTPStatus
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from fastapi.testclient import TestClient

from shop import providers, web
from shop.tasks import cancel_if_unpaid, charge, report_sales
from towpath.testing import IsolatedJobs

client = TestClient(web.api)  # without `with` it runs no lifespan, so no worker


def place_order(card: str = "visa") -> int:
    return int(
        client.post("/orders", json={"item": "rope", "cents": 1900, "card": card}).json()["id"]
    )


def state(order_id: int) -> str:
    return str(client.get(f"/orders/{order_id}").json()["state"])


def test_an_order_is_stored_with_its_jobs(jobs: IsolatedJobs) -> None:
    order_id = place_order()

    assert state(order_id) == "placed"
    jobs.assert_enqueued(charge, order_id)
    jobs.assert_enqueued(cancel_if_unpaid.using(delay="15m"), order_id)


def test_a_request_that_fails_stores_neither_order_nor_job(
    jobs: IsolatedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "cancel_if_unpaid", None)  # fails after `charge` is enqueued
    with pytest.raises(AttributeError):
        place_order()

    assert client.get("/orders/1").status_code == HTTPStatus.NOT_FOUND
    jobs.assert_nothing_enqueued()


def test_an_order_is_paid_then_documented_then_shipped(jobs: IsolatedJobs) -> None:
    order_id = place_order()

    first, *between, last = [job.options.task or job.topic for job in jobs.run()]
    assert (first, last) == ("charge", "ship")
    assert sorted(between) == ["make_invoice", "make_packing_slip", "send_receipt"]
    assert state(order_id) == "shipped"
    assert Path(f"files/invoice-{order_id}.txt").read_text() == "1 rope: 19.00\n"


def test_a_declined_card_is_not_charged_again(jobs: IsolatedJobs) -> None:
    order_id = place_order(card="no-money")

    with pytest.raises(providers.CardDeclined):
        jobs.run()
    assert state(order_id) == "declined"
    jobs.assert_nothing_enqueued(charge)


def test_a_provider_that_is_down_is_asked_again(
    jobs: IsolatedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise ConnectionError

    order_id = place_order()
    with monkeypatch.context() as broken:
        broken.setattr(providers, "take_payment", unreachable)
        jobs.run(raises=False)
    assert state(order_id) == "placed"

    jobs.clock.advance("5s")
    jobs.run()
    assert state(order_id) == "shipped"


def test_a_worker_that_dies_after_the_payment_ships_once(jobs: IsolatedJobs) -> None:
    order_id = place_order()
    with jobs.crashing():
        jobs.run()
    assert state(order_id) == "paid"  # but its job does not know

    jobs.clock.advance("1m")
    ran = [job.topic for job in jobs.run()]
    assert (ran.count("charge"), ran.count("ship")) == (1, 1)


def test_an_unpaid_order_is_cancelled_after_15_minutes(jobs: IsolatedJobs) -> None:
    order_id = place_order(card="no-money")
    jobs.run(raises=False)

    jobs.clock.advance("14m")
    assert jobs.run() == []
    jobs.clock.advance("1m")
    jobs.run()
    assert state(order_id) == "cancelled"


def test_a_payment_that_comes_too_late_is_refunded(
    jobs: IsolatedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(card: str, cents: int, *, idempotency_key: str) -> str:
        cancel_if_unpaid(order_id)  # a task is also a function
        return take_payment(card, cents, idempotency_key=idempotency_key)

    take_payment, refunds = providers.take_payment, list[str]()
    monkeypatch.setattr(providers, "take_payment", slow)
    monkeypatch.setattr(providers, "refund", refunds.append)
    order_id = place_order()

    jobs.run()
    assert state(order_id) == "cancelled"
    assert refunds == [f"payment-{order_id}"]


def test_a_report_is_made_at_2_every_night(jobs: IsolatedJobs) -> None:
    order_id = place_order()
    jobs.run()

    jobs.clock.advance("2d")  # missed fires become one job
    [report] = jobs.run(report_sales)
    assert f"{report.run_at.astimezone(ZoneInfo('Europe/Zurich')):%H:%M}" == "02:00"
    assert Path("files/sales.csv").read_text() == f"{order_id},rope,1900,shipped\n"


def test_two_requests_at_once_make_one_report(jobs: IsolatedJobs) -> None:
    first, second = (client.post("/reports").json()["id"] for _ in range(2))
    assert first == second

    jobs.run()
    answer = client.get(f"/reports/{first}").json()
    assert answer == {"status": "completed", "progress": None, "file": "files/sales.csv"}
