"""Roles of PostgreSQL for the parts that deliver webhooks: each may do its own work and no more.

They cannot log in: make a login a member of one (`create user hooks in role towpath_worker`), and
start its part with that login. All of it can run again, also after a migration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from towpath.model.sagas import Role
from towpath.operation import Mode, Operation, Steps
from towpath.statement import Statement, Statements, rows

ROLES: Final = (Role.ROUTER, Role.ORCHESTRATOR, Role.WORKER, Role.CLEANER, Role.OPERATOR)
_STANDING: Final = (  # of a subscription: what decides what may start
    "id, channel, deleted_at, paused, ordered, concurrency, pace, burst, waits, final"
)
GRANTS: Final[Mapping[Role, Mapping[str, str]]] = {
    # table: what its role may do
    Role.ROUTER: {
        "subscriptions": (
            "select (id, channel, types, filter_rule, since_channel, since, deleted_at)"
        ),
        "subscription_health": "select (subscription_id, wakes_at), update (wakes_at)",
        "webhook_events": "select, insert",
        "sagas": "insert",
        # To read a channel, and to give numbers to what was posted for it.
        "consumer": "select, insert, update (acked, seen_at)",
        "channel": "select, insert, update",
        "event": "select, insert",
        "posted": "select, insert, delete",
        "producer": "select",
        "lifetime": "select, update",
        "era": "select",
    },
    Role.ORCHESTRATOR: {
        "subscriptions": f"select ({_STANDING})",  # neither its URL nor its secrets
        "subscription_health": "select, update",
        "webhook_events": "select",
        "sagas": "select, update",
        "webhook_delivery_jobs": "select, insert, update (applied_at, status, finished_at)",
        "dead_letters": "select, insert",
        "posted": "select, insert",  # notices for `system`
        "channel": "select (id, name, closed_at)",
        "lifetime": "select (channel, expires_at)",
    },
    Role.WORKER: {
        "subscriptions": "select",
        "webhook_events": "select",
        "sagas": "select",
        "webhook_delivery_jobs": (
            "select, update (status, lease_until, lease_token, worker_id, finished_at, "
            "response_status, error_code, retry_after, duration, excerpt, location)"
        ),
    },
    Role.CLEANER: {
        "webhook_delivery_jobs": (
            "select, update (status, lease_until, lease_token, worker_id, lease_losses, "
            "error_code, finished_at)"
        ),
    },
    Role.OPERATOR: {
        "dead_letters": "select",
        "dead_letter_requeues": "select",
        # Whether what is requeued is held.
        "subscriptions": "select (id, paused)",
        "subscription_health": "select (subscription_id, stopped_at)",
    },
}

_RIGHT: Final = re.compile(r"(\w+)(?: \(([^)]*)\))?")  # on all columns, or on those in brackets


class sql(Statements):
    """The statements of roles.sql."""

    outdated = rows(str)


def role_name(schema: str, role: Role) -> str:
    """Return the name of a role in PostgreSQL, which all databases of a server share."""
    return f"{schema}_{role}"


def texts(schema: str) -> Iterator[str]:
    """Return the statements that make the roles, and give them their rights and no others."""
    space = f'"{schema}"'
    for role in ROLES:
        name = f'"{role_name(schema, role)}"'
        yield (
            f"do $$ begin create role {name} nologin; exception when duplicate_object then null; "
            "end $$"
        )
        yield f"revoke all on all tables in schema {space} from {name}"
        yield f"revoke all on all routines in schema {space} from {name}"
        yield f"grant usage on schema {space} to {name}"
        yield f"grant select on {space}.migration to {name}"
        for table, rights in GRANTS[role].items():
            yield f"grant {rights} on {space}.{table} to {name}"
    requeue = f"{space}.requeue_dead_letter(bigint, text, bigint)"
    yield f'grant execute on function {requeue} to "{role_name(schema, Role.OPERATOR)}"'


def make(schema: str) -> Operation[None]:
    """Make the roles, or bring their rights up to date."""

    def steps() -> Steps[None]:
        for text in texts(schema):
            yield Statement("make_roles", {"postgres": text})()

    return Operation("make_roles", steps)


def outdated(schema: str) -> Operation[list[str]]:
    """Name the roles that are there and have not all rights of this version."""

    def steps() -> Steps[list[str]]:
        return (yield from sql.outdated(list(_rights(schema)), schema=schema))

    return Operation("outdated_roles", steps, Mode.READ, autocommit=True)


def _rights(schema: str) -> Iterator[dict[str, Any]]:
    for role, grants in GRANTS.items():
        for table, rights in grants.items():
            where = {"role": role_name(schema, role), "place": f'"{schema}".{table}'}
            for right, columns in _RIGHT.findall(rights):
                for column in columns.split(","):
                    yield {**where, "may": right, "part": column.strip() or None}
