"""Passes: issued with the secret of our tokens, and spent once."""

from __future__ import annotations

from uuid import UUID

from towpath.model import passes
from towpath.model.ids import uuid7
from towpath.model.passes import LIFETIME, Pass
from towpath.operation import Operation, Rerun, Steps
from towpath.statement import Statements, rows
from towpath.store.access import known_secret, secret_and_now


class sql(Statements):
    """The statements of passes.sql."""

    spend = rows(UUID)


def issue(token: str, channels: tuple[str, ...]) -> Operation[str]:
    """Return a pass with a caller's token, for these channels."""

    def steps() -> Steps[str]:
        secret, now = yield from secret_and_now()
        content = Pass(uuid7(), token, channels, now + LIFETIME)
        return passes.sealed(content, secret)

    return Operation("issue_pass", steps)


def redeem(text: str) -> Operation[Pass]:
    """Spend a pass, and return what it holds."""

    def steps() -> Steps[Pass]:
        found = yield from known_secret()
        if found is None:
            raise passes.refused()
        content = passes.opened(text, *found)
        if not (yield from sql.spend(id=content.id, expires_at=content.expires_at)):
            raise passes.refused()
        return content

    return Operation("redeem_pass", steps, retry=Rerun.NEVER)
