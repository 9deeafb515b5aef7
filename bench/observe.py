"""What a lane was given: which batches, and what was merged in each."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from towpath.database.postgres_connection import TaskLane, ThreadLane
from towpath.database.sqlite_writer import Writer
from towpath.operation import Operation


class Part(NamedTuple):
    """Operations of one kind that ran as one."""

    name: str
    items: int


class Batch(NamedTuple):
    """What shared a commit."""

    lane: int
    parts: list[Part]


@contextlib.contextmanager
def batches() -> Iterator[list[Batch]]:
    """Note every batch that runs meanwhile, in this process."""
    seen: list[Batch] = []

    def noting(run: Any) -> Any:
        def noted(lane: object, operations: Sequence[Operation[Any]], *more: Any) -> Any:
            parts = [Part(each.name, len(each.batch.items) or 1) for each in operations]
            seen.append(Batch(id(lane), parts))
            return run(lane, operations, *more)

        return noted

    originals = [(kind, kind._run) for kind in (ThreadLane, TaskLane, Writer)]
    for kind, run in originals:
        kind._run = noting(run)  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        for kind, run in originals:
            kind._run = run  # type: ignore[method-assign]


def by_lane(seen: Sequence[Batch]) -> list[list[list[Part]]]:
    """Return the batches of each lane, in order."""
    lanes: dict[int, list[list[Part]]] = {}
    for lane, parts in seen:
        lanes.setdefault(lane, []).append(parts)
    return list(lanes.values())


def summary(seen: Sequence[Batch]) -> dict[str, float]:
    """Say how well they were merged."""
    count = sum(part.items for batch in seen for part in batch.parts)
    return {
        "commits": len(seen),
        "items": count,
        "items_per_commit": round(count / max(1, len(seen)), 2),
        "lanes": len({batch.lane for batch in seen}),
    }
