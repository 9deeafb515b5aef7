"""What operators see of webhooks: the doctor, metrics, commands, logs."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from tests.behaviour.webhooks import FAILED, GONE, Webhooks
from tests.cli.conftest import SOURCE
from tests.conftest import Clock, eventually, new_place
from tests.webhooks.http_receiver import HttpReceiver
from tests.webhooks.subscribing import subscribe
from towpath import App
from towpath.model.sagas import Role
from towpath.model.sealing import SealingKeys, new_key
from towpath.server.metrics import Metrics
from towpath.store import dead_letters
from towpath.store.roles import ROLES, role_name

PROGRAM = [sys.executable, "-m", "towpath"]


@pytest.fixture(scope="session")
def postgres(own_postgres):
    """A server whose roles a test may change."""
    return own_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    return new_place(request.param, tmp_path, request)


@pytest.fixture
def hooks(place):
    url, needed = place
    clock = Clock()
    with App(url, clock=clock, webhook_key=new_key(), **needed) as app:
        found = Webhooks(app)
        found.clock = clock
        yield found


def diagnosis(app):
    return [(check.verdict, check.message) for check in app.doctor() if check.name == "webhooks"]


def test_the_doctor_finds_what_webhooks_wait_for(hooks):
    hooks.create()
    [(verdict, _)] = diagnosis(hooks.app)
    assert verdict == "ok"

    hooks.app.events.publish("orders", 1)
    hooks.clock.advance(61)
    [(verdict, message)] = diagnosis(hooks.app)
    assert (verdict, "orders (1 events" in message) == ("problem", True)
    assert not [each for each in hooks.app.doctor() if "towpath.webhooks" in each.message]

    hooks.route()
    hooks.advance()
    hooks.clock.advance(301)
    [(verdict, message)] = diagnosis(hooks.app)
    assert (verdict, "no worker makes attempts: 1 wait" in message) == ("problem", True)

    [made] = hooks.claim()
    hooks.report(made, GONE)
    hooks.advance()
    [(verdict, message)] = diagnosis(hooks.app)
    assert (verdict, "are stopped" in message, "gone" in message) == ("warning", True, True)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_the_doctor_knows_a_restricted_role_and_one_from_before_a_migration(hooks, postgres):
    app = hooks.app
    app.deliveries.make_roles()
    schema = app.settings.schema
    try:
        name = role_name(schema, Role.WORKER)
        assert [verdict for verdict, _ in diagnosis(app)] == ["ok"]
        hooks.sql(f"revoke update (location) on towpath.webhook_delivery_jobs from {name}")
        hooks.sql(f"revoke insert on towpath.sagas from {role_name(schema, Role.ROUTER)}")
        [(verdict, message)] = diagnosis(app)
        assert (verdict, message.endswith(f"{schema}_router, {name}")) == ("warning", True)
        for role in ROLES:  # as in another database of the server, which has no use for roles
            hooks.sql(f"drop owned by {role_name(schema, role)}")
        assert [verdict for verdict, _ in diagnosis(app)] == ["ok"]
        app.deliveries.make_roles()
        assert [verdict for verdict, _ in diagnosis(app)] == ["ok"]
        hooks.sql(f"alter role {name} login")
        with App(postgres.url(user=name), schema=schema) as worker:
            checks = worker.doctor()
    finally:
        for role in ("router", "orchestrator", "worker", "cleaner", "operator"):
            hooks.sql(f"drop owned by {schema}_{role}")
            hooks.sql(f"drop role {schema}_{role}")

    assert [check for check in checks if check.verdict == "problem"] == []
    assert name in next(check.message for check in checks if check.name == "rights")


def test_metrics_count_webhooks_without_a_label_for_each(hooks):
    hooks.create(waits="[]")
    hooks.publish(1, 2)
    hooks.deliver(FAILED, most=1)
    hooks.advance()

    text = asyncio.run(Metrics().text(hooks.app, {"completed": 2, "timeout": 1}))

    assert 'towpath_webhook_subscriptions{state="failing"} 1' in text
    assert 'towpath_webhook_attempts{status="pending"} 1' in text
    assert 'towpath_webhook_attempts_total{outcome="completed"} 2' in text
    assert 'towpath_webhook_attempts_total{outcome="timeout"} 1' in text
    assert "towpath_webhook_dead_letters 1" in text
    hooks.run(dead_letters.delete(hooks.letters()[0].id))
    assert "towpath_webhook_dead_letters 0" in asyncio.run(Metrics().text(hooks.app, {}))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "command", [["webhooks", "run"], ["serve", "--port", "0"]], ids=lambda words: words[0]
)
def test_a_process_delivers_and_ends_in_order(place, tmp_path, command):
    url, needed = place
    key = new_key()
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "TOWPATH_WEBHOOK_KEY": key,
        "TOWPATH_WEBHOOK_ALLOW": "127.0.0.0/8", "TOWPATH_WEBHOOK_HTTP": "1",
    }  # fmt: skip
    words = [*PROGRAM, *command, "--database", url, "--json"]
    log = tmp_path / "log"
    with App(url, webhook_key=key, **needed) as app, HttpReceiver() as receiver:
        subscribe(app, receiver.url)
        with log.open("w") as errors:
            process = subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, stderr=errors, cwd=tmp_path
            )
        try:
            assert process.stdout.readline()
            app.events.publish("orders", 1)
            eventually(lambda: len(receiver.arrivals) == 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        assert Webhooks(app).sql("select status from towpath.webhook_delivery_jobs") == [
            ("Completed",)
        ]
    assert "Traceback" not in log.read_text()


def test_a_key_is_made_and_the_roles_are_printed(tmp_path):
    def said(*words):
        done = subprocess.run(
            [*PROGRAM, "webhooks", *words], cwd=tmp_path, capture_output=True, check=True, text=True
        )
        return done.stdout.strip()

    SealingKeys(said("key")).seal("x", 1)
    assert 'grant select on "towpath".migration to "towpath_worker";' in said("roles")
