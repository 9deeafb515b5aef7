"""Checks of webhooks, for the doctor."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from towpath.app.checkup import Check, ok, problem, remedies_for, some, warning
from towpath.model.instants import as_timedelta, spoken
from towpath.operation import Operation
from towpath.store import roles
from towpath.store import webhook_facts as facts

MOST: Final = 1_000  # that are found


class WebhookDoctor:
    """Looks for deliveries that wait, and says for what; `run` runs an operation."""

    def __init__(self, run: Callable[[Operation[Any]], Any], patience: int, schema: str) -> None:
        self._run = run
        self._patience = patience
        self._schema = schema

    def checks(self) -> Iterator[Check]:
        """Run the checks."""
        behind = self._run(facts.behind(self._patience, MOST))
        late = self._run(facts.late(self._patience))
        stopped = self._run(facts.stopped(MOST))
        outdated = self._run(roles.outdated(self._schema))
        advice = "start `towpath serve` or `towpath webhooks run`"
        if behind:
            names = (f"{each.channel} ({each.lag} events, {_time(each.behind)})" for each in behind)
            yield problem("webhooks", f"events wait for the router: {some(names)}", advice)
        if late.waiting and not late.leased:
            count = f"{late.waiting} or more" if late.waiting >= MOST else late.waiting
            message = f"no worker makes attempts: {count} wait, the oldest for {_time(late.oldest)}"
            yield problem("webhooks", message, f"{advice}; check TOWPATH_WEBHOOK_KEY")
        elif late.waiting:
            message = f"workers fall behind: an attempt has waited for {_time(late.oldest)}"
            yield warning("webhooks", message, "start more workers, or raise their concurrency")
        if stopped:
            names = (f"{each.id} on {each.channel} ({each.why})" for each in stopped)
            message = f"subscriptions are stopped, and their events wait: {some(names)}"
            ids = [str(each.id) for each in stopped]
            yield warning(
                "webhooks",
                message,
                "repair the receivers, and enable the subscriptions",
                code="stopped_subscriptions",
                about=ids,
                remedies=remedies_for(ids, "Enable {}", "/api/webhooks/{}/enable"),
            )
        if outdated:
            message = f"roles lack rights that this version needs: {some(outdated)}"
            yield warning("webhooks", message, "run `towpath webhooks roles --apply`")
        if not (behind or late.waiting or stopped or outdated):
            yield ok("webhooks", "no event and no attempt is late, no subscription is stopped")


def _time(microseconds: int) -> str:
    return spoken(as_timedelta(microseconds))
