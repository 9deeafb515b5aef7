"""The dashboard: its lists and counts with few and with many jobs, and what open pages cost."""

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import psycopg

from bench.http import BODY, Server, process, serving
from bench.places import Place
from bench.rounds import Floor, Plan, Rate, Result, by_turns, percentile
from tests.behaviour.test_list_plans import RECURSIVE, SERIES, fill, fill_jobs

FEW: Final = 1_000
MANY: Final = 1_000_000
PAGES: Final = 50
PER_SECOND: Final = 20  # jobs that come while pages are open
TIMES: Final = 10  # so often each is asked in a round
LISTS: Final = {
    "the first page": "limit=50",
    "the first page, counted": "count=true",
    "the oldest": "order=oldest",
    "the page behind the middle": "before={middle}",
    "pending": "status=pending&count=true",
    "ready": "state=ready&count=true",
    "ready in the order of reservation": "state=ready&order=next&topic=t3",
    "delayed": "state=delayed&count=true",
    "processing": "status=processing&count=true",
    "completed": "status=completed&count=true",
    "failed": "status=failed&count=true",
    "cancelled": "status=cancelled&count=true",
    "of a topic": "topic=t3&count=true",
    "of a rare topic": "topic=rare",
    "failed of a rare topic": "status=failed&topic=rare",
    "in a range of time": "since=1970-01-01T00:05:00Z&until=1970-01-01T00:10:00Z",
    "with a text that none has": "text=nothing",
    "with an error that none has": "status=failed&error=nothing",
    "with a key that none has": "key=nothing",
}
COUNTS: Final = {
    "statistics": "/api/jobs/stats",
    "topics": "/api/topics",
    "one topic": "/api/topics/t3",
    "outcomes of an hour": "/api/jobs/throughput?minutes=60&step=60",
    "outcomes of a month": "/api/jobs/throughput?minutes=43200&step=3600",
    "outcomes of each topic": "/api/jobs/throughput?minutes=60&step=300&by=topic",
    "failures of an hour": "/api/failures?minutes=60",
    "run times": "/api/jobs/durations",
    "flows": "/api/flows",
    "limits": "/api/limits",
    "workers": "/api/workers",
}


def measure(place: Place, plan: Plan) -> Iterator[Result]:
    with place.spot() as small, place.spot() as large:
        filled(place, small, FEW)
        filled(place, large, plan.count(MANY))
        with serving(small) as few, serving(large) as many:
            asked = Asker(many, token(large), plan.count(MANY)), Asker(few, token(small), FEW)
            paths = {what: f"/api/jobs?brief=true&{query}" for what, query in LISTS.items()}
            for what, path in (paths | COUNTS).items():
                yield slower(place, plan, f"{what}; bare = {FEW:,} jobs", path, asked)
            yield from watched(place, plan, many, token(large))


def filled(place: Place, spot: Any, jobs: int) -> None:
    """Store jobs in all states, and outcomes of a month."""
    now = time.time_ns() // 1_000
    if place.kind == "postgres":
        schema = spot.settings["schema"]
        id = "cast('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid)"
        with psycopg.connect(spot.url) as connection:
            fill(connection.execute, f"{schema}.", SERIES, now)
            fill_jobs(connection.execute, f"{schema}.", SERIES, id, 1, jobs)
    else:
        id = "cast(printf('%016d', n) as blob)"
        with contextlib.closing(sqlite3.connect(spot.path)) as file, file:
            fill(file.execute, "towpath_", RECURSIVE, now)
            fill_jobs(file.execute, "towpath_", RECURSIVE, id, 1, jobs)
    spot.tidy()


def token(spot: Any) -> str:
    """Return the token of a superuser."""
    with spot.app() as app:
        name = f"root{time.monotonic_ns()}@example.org"
        made: str = app.accounts.token(app.accounts.create("_superusers", name, "correct horse"))
        return made


class Asker:
    """Asks a server, one question after the other."""

    def __init__(self, server: Server, token: str, jobs: int) -> None:
        head = {"authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=server.url, headers=head, timeout=60)
        self._middle = str(jobs // 2)

    def rate(self, path: str) -> Rate:
        """Return how many answers come in a second, by the median of some."""
        taken: list[float] = []
        for _ in range(TIMES):
            begun = time.perf_counter()
            answer = self._client.get(path.replace("{middle}", self._middle))
            taken.append(time.perf_counter() - begun)
            assert answer.status_code == 200, answer.text
        return Rate(1 / percentile(taken, 0.5), 0)


def slower(place: Place, plan: Plan, what: str, path: str, asked: tuple[Asker, Asker]) -> Result:
    """Measure how much longer an answer takes with many jobs."""
    asked[0].rate(path)
    asked[1].rate(path)
    many, few = by_turns(plan.rounds, lambda: asked[0].rate(path), lambda: asked[1].rate(path))
    return Result(
        database=place.name,
        what=what,
        unit="ms",
        ours=[1e3 / each.per_second for each in many],
        bare=[1e3 / each.per_second for each in few],
        less_is_better=True,
    )


def watched(place: Place, plan: Plan, server: Server, token: str) -> Iterator[Result]:
    """Measure what open pages take of a server, while jobs come steadily.

    A page that shows jobs of the topic asks for its rows after each change. Browsers run elsewhere,
    so the CPU time of the server counts.
    """
    seconds = plan.count(8, least=5)
    for shown, topic in (("another topic", "t3"), ("the topic that changes", "bench")):
        steady(server, token, seconds)
        with_pages: list[float] = []
        without: list[float] = []
        for _ in range(plan.rounds):
            without.append(steady(server, token, seconds))
            with pages(server, token, topic):
                with_pages.append(steady(server, token, seconds))
        yield Result(
            database=place.name,
            what=f"CPU beside {PAGES} pages that show {shown}; bare = no page",
            unit="%",
            ours=with_pages,
            bare=without,
            less_is_better=True,
        )
        yield Result(
            database=place.name,
            what=f"what {PAGES} pages that show {shown} take",
            unit="% of a CPU",
            ours=[min(with_pages) - min(without)],
            floor=Floor("ours", "<", 5),
            less_is_better=True,
        )


def steady(server: Server, token: str, seconds: float) -> float:
    """Enqueue some jobs a second; return how much of a CPU the server takes, in percent."""
    head = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    with httpx.Client(base_url=server.url, headers=head, timeout=60) as client:
        begun, before, count = time.perf_counter(), server.cpu(), 0
        while (taken := time.perf_counter() - begun) < seconds:
            assert client.post("/api/jobs/enqueue", content=BODY).status_code == 201
            count += 1
            time.sleep(max(0.0, count / PER_SECOND - taken))
        return (server.cpu() - before) / taken * 100


@contextlib.contextmanager
def pages(server: Server, token: str, topic: str) -> Iterator[None]:
    """Keep pages open that show the jobs of a topic."""
    spec = {"port": server.port, "token": token, "pages": PAGES, "topic": topic}
    command = [sys.executable, "-m", "bench.dashboard_pages", json.dumps(spec)]
    with process(command, {}) as started:
        assert started.stdout
        assert started.stdout.readline(), "the pages have failed"
        yield
