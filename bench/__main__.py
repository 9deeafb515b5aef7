"""python -m bench [what …] [--on DATABASE] [--json PATH] [--quick].

python -m bench compare A B: two results.
python -m bench against COMMIT what …: an earlier commit and this one by turns.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench import against
from bench.places import DURABLE, Place, PostgresPlace, SqlitePlace
from bench.report import Report, about, compare, save, show
from bench.rounds import Plan
from tests.servers import PostgresServer

THEMES: Final = (  # each is a module, which is imported when it runs
    "enqueue", "cycle", "latency", "events", "processes", "wal", "open_transaction", "memory",
    "worker", "rates", "http", "webhooks", "dashboard", "beanstalkd", "peers",
)  # fmt: skip
ASKED_FOR: Final = {"peers"}  # installs what others have made
DATABASES: Final = ("postgres", "sqlite-full", "sqlite-normal")


def main() -> None:
    if sys.argv[1:2] == ["compare"]:
        before, after = sys.argv[2:]
        compare(Path(before), Path(after))
        return
    if sys.argv[1:2] == ["against"]:
        against.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("what", nargs="*", help=", ".join(THEMES))
    parser.add_argument("--on", action="append", choices=DATABASES)
    parser.add_argument("--json", type=Path, help="write the results here and nowhere else")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, once: does it run?")
    given = parser.parse_args()
    unknown = set(given.what) - set(THEMES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}: use {', '.join(THEMES)}")
    plan = Plan(rounds=1, scale=0.1) if given.quick else Plan()
    report = Report(about={**about(), "rounds": plan.rounds, "scale": plan.scale}, results=[])
    with ExitStack() as stack:
        for place in _places(given.on or DATABASES, stack):
            for theme in given.what or (t for t in THEMES if t not in ASKED_FOR):
                for result in import_module(f"bench.{theme}").measure(place, plan):
                    print(f"{place.name}: {result.what}: {result.best:,.6g} {result.unit}",
                          f"ratio {result.ratio:.2f}" if result.ratio else "",
                          file=sys.stderr, flush=True)  # fmt: skip
                    report.results.append(result)
    show(report)
    print(save(report, given.json))


def _places(names: Any, stack: ExitStack) -> Iterator[Place]:
    for name in names:
        if name == "postgres":
            yield PostgresPlace(stack.enter_context(PostgresServer(DURABLE)))
        else:
            yield SqlitePlace(name.removeprefix("sqlite-"))


if __name__ == "__main__":
    main()
