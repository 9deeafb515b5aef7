"""WH-9: each part does its own work and nothing else: by roles on PostgreSQL, code on SQLite."""

import ast
import asyncio
import contextlib
import json
from logging import WARNING
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.behaviour.webhooks import FAILED, Webhooks, selection
from tests.cli.conftest import Towpath
from tests.conftest import Clock, new_place
from tests.faults.processes import until
from tests.webhooks.subscribing import subscribe
from tests.webhooks.test_running import URL, Gated, running, statuses
from towpath import App, store
from towpath.errors import DatabaseDenied, TowpathError
from towpath.model.sagas import OPERATIONS, Role, SagaStatus, may_run
from towpath.model.sealing import new_key
from towpath.model.subscriptions import Replay
from towpath.store import (
    advancing,
    dead_letters,
    deliveries,
    events,
    replaying,
    roles,
    routing,
    sagas,
    subscriptions,
    webhook_upkeep,
)
from towpath.store.dead_letters import Requeue
from towpath.store.deliveries import Line, Report
from towpath.store.event_rows import EventBody
from towpath.store.events import Append
from towpath.store.roles import ROLES, role_name

PROCESSES = (Role.ROUTER, Role.ORCHESTRATOR, Role.WORKER, Role.CLEANER)
MODULES = (
    "advancing", "dead_letters", "deliveries", "replaying", "roles", "routing", "sagas",
    "subscriptions", "webhook_facts", "webhook_upkeep",
)  # fmt: skip
MANAGERS = {  # what no restricted role may run
    "create_subscription", "update_subscription", "reseal_subscription", "sealed",
    "pause_subscription", "resume_subscription", "enable_subscription", "delete_subscription",
    "get_subscription", "list_subscriptions", "health_of_subscriptions", "cancel_sagas",
    "resend_saga", "ping_subscription", "get_saga", "sagas_of_event", "list_sagas",
    "list_attempts", "delete_dead_letter", "prune_sagas", "prune_dead_letters",
    "end_deleted_subscriptions", "wake_forgotten", "make_roles", "move_webhooks",
    "prune_webhook_events",
    "find_subscriptions", "last_of_replay", "candidates_of_replay", "replay_sagas",
    "late_deliveries", "stopped_subscriptions", "unrouted_channels", "count_webhooks",
    "restricted_role", "outdated_roles",
}  # fmt: skip
REPLAY = Replay(
    subscription=1,
    status=SagaStatus.COMPLETED,
    types=["*"],
    since=0,
    until=1,
    upto=1,
    count=1,
    pace=None,
)
EXAMPLES = {
    "unrouted": lambda: routing.unrouted(""),
    "route": lambda: routing.route("orders", selection),
    "append": lambda: events.append([Append(channel="orders", events=[body(1)])]),
    "next_wake": advancing.next_wake,
    "advance": advancing.advance,
    "is_claimable": deliveries.is_claimable,
    "claim_deliveries": lambda: deliveries.claim([Line(False, 1)], 1, "w"),
    "report_deliveries": lambda: deliveries.report([Report(1, 1, FAILED)]),
    "decline_deliveries": lambda: deliveries.decline([]),
    "reset_deliveries": deliveries.reset,
    "list_dead_letters": lambda: dead_letters.list_letters(10),
    "get_dead_letter": lambda: dead_letters.get(1),
    "requeue_dead_letters": lambda: dead_letters.requeue([Requeue(1, "op")]),
    "delete_dead_letter": lambda: dead_letters.delete(1),
    "update_subscription": lambda: subscriptions.update(1, {"url": "https://evil.example/"}),
    "sealed": lambda: subscriptions.sealed(1),
    "pause_subscription": lambda: subscriptions.pause(1),
    "resume_subscription": lambda: subscriptions.resume(1),
    "enable_subscription": lambda: subscriptions.enable(1),
    "delete_subscription": lambda: subscriptions.delete(1),
    "get_subscription": lambda: subscriptions.get(1),
    "health_of_subscriptions": lambda: subscriptions.health([1]),
    "cancel_sagas": lambda: sagas.cancel([1]),
    "ping_subscription": lambda: sagas.ping(1, uuid4(), "1", "json"),
    "get_saga": lambda: sagas.get(1),
    "list_sagas": lambda: sagas.list_sagas(10),
    "list_attempts": lambda: sagas.attempts(1),
    "prune_sagas": lambda: webhook_upkeep.prune_sagas(0, 0),
    "prune_dead_letters": lambda: webhook_upkeep.prune_letters(0),
    "end_deleted_subscriptions": lambda: webhook_upkeep.end_deleted(0, 0),
    "wake_forgotten": lambda: webhook_upkeep.wake_forgotten(0),
    "reseal_subscription": lambda: subscriptions.reseal(1, str.upper),
    "list_subscriptions": lambda: subscriptions.list_subscriptions(0, 10),
    "find_subscriptions": lambda: subscriptions.find([1]),
    "sagas_of_event": lambda: sagas.of_event(uuid4()),
    "resend_saga": lambda: sagas.resend(1, confirm=True),
    "move_webhooks": webhook_upkeep.move_near,
    "last_of_replay": lambda: replaying.last(SagaStatus.COMPLETED),
    "candidates_of_replay": lambda: replaying.candidates(REPLAY, 0, 10),
    "replay_sagas": lambda: replaying.send_again(1, [1]),
}


def body(payload):
    text = json.dumps(payload)
    return EventBody(id=uuid4(), body=text, encoding="json", size=len(text))


READS_SAGAS = {
    "get_saga", "list_sagas", "list_attempts", "sagas_of_event", "last_of_replay",
    "candidates_of_replay",
}  # fmt: skip
BY_ITS_OWN_RIGHTS = {  # what a role could do on PostgreSQL, as its own work needs the same rights
    Role.WORKER: READS_SAGAS
    | {"sealed", "get_subscription", "list_subscriptions", "find_subscriptions"},
    Role.ORCHESTRATOR: READS_SAGAS | {"is_claimable", "wake_forgotten"},
    Role.CLEANER: {"is_claimable", "list_attempts", "decline_deliveries"},
}
TAKE_BACK = "update webhook_delivery_jobs set status = 'Pending', lease_until = null where id = 1"
CANCEL = "update webhook_delivery_jobs set status = 'Cancelled', finished_at = 1 where id = 2"
FORBIDDEN = {
    Role.WORKER: [
        "update sagas set status = 'Completed'",
        "update sagas set attempt_count = attempt_count + 1",
        "insert into sagas default values",
        "delete from sagas",
        "insert into webhook_delivery_jobs default values",
        "delete from webhook_delivery_jobs",
        "update webhook_delivery_jobs set applied_at = 1",
        "update webhook_delivery_jobs set lease_losses = 0",
        "update webhook_delivery_jobs set saga_id = 1",
        TAKE_BACK,
        CANCEL,
        "insert into dead_letters default values",
        "select * from dead_letters",
        "update subscriptions set url = 'https://evil.example/'",
        "update subscriptions set sealed = ''",
        "select * from subscription_health",
        "update subscription_health set failures = 0",
        "update webhook_events set payload = ''",
        "select * from event",
        "select * from job",
        "select * from api_key",
    ],
    Role.ORCHESTRATOR: [
        "select sealed from subscriptions",
        "select url from subscriptions",
        "update subscriptions set paused = true",
        "delete from subscriptions",
        "delete from sagas",
        "insert into sagas default values",
        "update webhook_delivery_jobs set response_status = 200",
        "update webhook_delivery_jobs set lease_token = 1",
        TAKE_BACK,
        CANCEL,
        "delete from webhook_delivery_jobs",
        "delete from dead_letters",
        "update dead_letters set payload_snapshot = ''",
        "update webhook_events set payload = ''",
        "select * from event",
        "select * from ready",
    ],
    Role.ROUTER: [
        "select sealed from subscriptions",
        "update subscriptions set since = 0",
        "select failures from subscription_health",
        "update subscription_health set failures = 0",
        "select * from sagas",
        "update sagas set status = 'Completed'",
        "delete from webhook_events",
        "select * from webhook_delivery_jobs",
        "insert into webhook_delivery_jobs default values",
        "select * from dead_letters",
        "delete from event",
        "select * from job",
    ],
    Role.CLEANER: [
        "select * from sagas",
        "update sagas set status = 'Completed'",
        "select * from subscriptions",
        "select * from subscription_health",
        "select * from webhook_events",
        "update webhook_delivery_jobs set response_status = 200",
        "update webhook_delivery_jobs set applied_at = 1",
        CANCEL,
        "insert into webhook_delivery_jobs default values",
        "delete from webhook_delivery_jobs",
        "insert into dead_letters default values",
    ],
    Role.OPERATOR: [
        "update sagas set status = 'Pending'",
        "insert into sagas default values",
        "select * from sagas",
        "update dead_letters set failed_at = 0",
        "delete from dead_letters",
        "insert into dead_letter_requeues default values",
        "select * from subscriptions",
        "update subscription_health set wakes_at = 0",
        "insert into webhook_delivery_jobs default values",
        "update webhook_delivery_jobs set status = 'Pending'",
        "insert into webhook_events default values",
    ],
}


class Parts:
    """An app, and the same database as each role sees it."""

    def __init__(self, app, logins):
        self.app = app
        self.logins = logins

    def __getitem__(self, role):
        """Return what runs operations in this role."""
        return self.logins[role] if self.logins else self.app.acting(role)


@pytest.fixture(params=["sqlite", "postgres"])
def parts(request, tmp_path):
    url, needed = new_place(request.param, tmp_path, request)
    clock, key = Clock(), new_key()
    with contextlib.ExitStack() as stack:
        app = stack.enter_context(App(url, clock=clock, webhook_key=key, **needed))
        app.migrate()
        app.clock = clock
        logins = {}
        if request.param == "postgres":
            postgres = request.getfixturevalue("own_postgres")
            app.deliveries.make_roles()
            app.deliveries.make_roles()  # again, which changes nothing
            stack.callback(drop_roles, url, needed["schema"])
            for role in ROLES:
                logins[role] = login(stack, postgres, role, clock=clock, webhook_key=key, **needed)
        yield Parts(app, logins)


@pytest.fixture
def postgres(own_postgres):
    """A server whose roles a test may change."""
    return own_postgres


def login(stack, postgres, role, **options):
    name = role_name(options["schema"], role)
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"create role {name}_login login in role {name}")
    return stack.enter_context(App(postgres.url(user=f"{name}_login"), **options))


def drop_roles(url, schema):
    with psycopg.connect(url, autocommit=True) as admin:
        for role in ROLES:
            name = role_name(schema, role)
            admin.execute(f"drop owned by {name}; drop role {name}; drop role {name}_login")


def test_a_delivery_takes_all_roles_and_each_does_its_own_part(parts):
    manager = Webhooks(parts.app)
    manager.create(waits="[]")
    parts.app.events.publish("orders", 1)
    parts.app.run(events.post(Append(channel="orders", events=[body(2)])))

    router = parts[Role.ROUTER]
    assert router.run(routing.unrouted("")).behind == ["orders"]
    router.run(events.place(["orders"]))
    assert router.run(routing.route("orders", selection)).sagas == 2
    orchestrator = parts[Role.ORCHESTRATOR]
    assert orchestrator.run(advancing.next_wake()) == 0
    assert orchestrator.run(advancing.advance()).started == 2
    worker = parts[Role.WORKER]
    assert worker.run(deliveries.is_claimable())
    one, _ = worker.run(deliveries.claim([Line(False, 9), Line(True, 9)], 7, "w"))
    assert worker.run(deliveries.report([Report(one.job, one.token, FAILED)])) == [None]
    parts.app.clock.advance(60)
    assert len(parts[Role.CLEANER].run(deliveries.reset())) == 1
    advanced = orchestrator.run(advancing.advance())
    assert [each.status for each in advanced.applied] == ["DeadLettered"]
    operator = parts[Role.OPERATOR]
    [letter] = operator.run(dead_letters.list_letters(10))
    assert operator.run(dead_letters.get(letter.id)).body == "1"
    [saga] = operator.run(dead_letters.requeue([Requeue(letter.id, "op")]))
    assert saga == parts.app.webhooks.sagas.get(saga.id)
    manager.check()


@pytest.mark.parametrize("parts", ["postgres"], indirect=True)
def test_the_operator_requeues_by_the_verb_and_by_the_command(parts, tmp_path):
    """WH-9, also to a subscription that is paused."""
    hooks = Webhooks(parts.app)
    paused = hooks.create(waits="[]").id
    hooks.publish(1, 2)
    hooks.deliver(FAILED)
    hooks.deliver(FAILED)
    first, second = reversed(hooks.letters())
    login = parts.logins[Role.OPERATOR]

    made = login.webhooks.dead_letters.requeue(first.id, actor="op")
    assert made == parts.app.webhooks.sagas.get(made.id)
    hooks.run(subscriptions.pause(paused))
    schema = parts.app.settings.schema
    towpath = Towpath(tmp_path, TOWPATH_DATABASE=login.url, TOWPATH_SCHEMA=schema)
    said = towpath("webhooks", "requeue", second.id)
    assert f"saga {made.id + 1} is Held: subscription {paused} is paused or stopped" in said.stdout
    hooks.advance()
    assert hooks.statuses()[-2:] == ["Held", "Held"]


@pytest.mark.parametrize("parts", ["postgres"], indirect=True)
def test_the_parts_deliver_though_each_is_logged_in_as_its_role(parts, caplog):
    """WH-9: what a process does beside its operations needs no other rights."""
    subscribe(parts.app, URL, waits="[1000]")
    poster = Gated()
    poster.gate.set()
    poster.receivers[URL].answers(503)

    async def deliver():
        async with contextlib.AsyncExitStack() as stack:
            for role in PROCESSES:
                app = parts.logins[role]
                await stack.enter_async_context(running(app, poster, only=role.value))
            await parts.app.events.apublish("orders", 1)
            await until(lambda: [saga.attempts for saga in parts.app.webhooks.sagas.list()] == [1])
            parts.app.clock.advance(1)
            await until(lambda: statuses(parts.app) == ["Completed"])

    asyncio.run(deliver())
    assert [record.getMessage() for record in caplog.records if record.levelno >= WARNING] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_refused_the_operations_of_others(parts, role):
    """On PostgreSQL the database refuses them."""
    hooks = Webhooks(parts.app)
    hooks.create(waits="[]")
    hooks.publish(1, 2)
    hooks.deliver(FAILED, most=1)
    hooks.advance()
    parts.app.events.publish("orders", 3)
    parts.app.run(subscriptions.delete(hooks.create().id))
    parts.app.clock.advance(60)
    more = BY_ITS_OWN_RIGHTS.get(role, set()) if parts.logins else set()

    allowed = set()
    for name, make in EXAMPLES.items():
        try:
            parts[role].run(make())
        except DatabaseDenied:
            continue
        except TowpathError:
            pass  # it was let in
        allowed.add(name)

    assert allowed == OPERATIONS[role] | more
    assert len(EXAMPLES.keys() - allowed) >= 25


@pytest.mark.parametrize("parts", ["postgres"], indirect=True)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_no_rights_beyond_its_work(parts, role):
    """Check 34."""
    app = parts.logins[role]
    assert sum(map(len, FORBIDDEN.values())) >= 25
    hooks = Webhooks(parts.app)
    hooks.create()
    hooks.publish(1, 2)
    hooks.advance()
    assert len(hooks.claim(1)) == 1
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute(f"set search_path = {app.settings.schema}")
        for text in FORBIDDEN[role]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(text)


def test_every_operation_belongs_to_a_role():
    found = set()
    for module in MODULES:
        text = (Path(store.__file__).parent / f"{module}.py").read_text()
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Operation":
                found.add(ast.literal_eval(call.args[0]))
    restricted = set().union(*OPERATIONS.values()) - {"append"}  # which is that of events

    assert found == restricted | MANAGERS
    assert all(may_run(Role.MANAGER, name) for name in found)


def test_the_rights_are_printed_as_sql(parts):
    text = parts.app.deliveries.roles_sql()

    assert text.count("create role") == len(ROLES)
    for grants in roles.GRANTS.values():
        assert all(f"grant {rights} on" in text for rights in grants.values())
