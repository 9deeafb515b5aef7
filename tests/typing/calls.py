"""What type checkers say of tasks: a line marked `wrong` is refused, and no other."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, assert_type

from towpath import (
    App,
    Backoff,
    Chain,
    Context,
    Event,
    Group,
    Job,
    Lease,
    LogLine,
    Said,
    StreamEnd,
    Task,
    TaskJob,
    group,
)

app = App("memory://")


@app.task(max_retries=5, timeout="10m")
async def summarise(document: str, words: int = 100) -> str:
    return document[:words]


@app.task()
def double(number: int) -> int:
    return number * 2


@app.task(topic="reports")
async def report(ctx: Context, name: str) -> None:
    assert ctx.job.topic, name


assert_type(double(21), int)
assert_type(double.enqueue(21), TaskJob[int])
assert_type(double.enqueue(21).result(), int)
double.enqueue("21")  # wrong
double.enqueue()  # wrong
double.enqueue(21, priority=1)  # wrong
double.using(priority=1).enqueue(21)
double.using(priority="high").enqueue(21)  # wrong
double.using(prioriy=1).enqueue(21)  # wrong
double.using(priority=1).enqueue("21")  # wrong


async def main() -> None:
    assert_type(await summarise("text"), str)
    assert_type(await summarise.aenqueue("text", words=3), TaskJob[str])
    assert_type(await (await summarise.aenqueue("text")).aresult(), str)
    await summarise.aenqueue(3)  # wrong
    await summarise.aenqueue("text", word=3)  # wrong
    await report.aenqueue("monthly")
    await report.aenqueue(7)  # wrong


def take(task: Task[Callable[[Context, str], Coroutine[Any, Any, None]]]) -> None: ...


take(report)
take(double)  # wrong


@app.task()
def read_one(ctx: Context, document: str) -> dict[str, Any]:
    return {document: ctx.tries}


@app.task()
def read_bare(ctx: Context, document: str) -> dict[Any, Any]:
    return {document: ctx.tries}


@app.task()
def read_any(ctx: Context, document: str) -> Any:
    return document, ctx.tries


@app.task()
async def fetch_one(ctx: Context, document: str) -> dict[str, Any]:
    return {document: ctx.tries}


@app.task()
async def fetch_any(ctx: Context, document: str) -> Any:
    return document, ctx.tries


@app.task()
def plain_one(document: str) -> dict[str, Any]:
    return {document: 1}


@app.task()
def plain_any(document: str) -> Any:
    return document


@app.task()
async def afetch_plain(document: str) -> Any:
    return document


@app.task()
def takes_anything(what: Any, document: str) -> int:
    return len(document + str(what))


assert_type(read_one.enqueue("d1"), TaskJob[dict[str, Any]])
assert_type(read_one.enqueue(document="d1").result(), dict[str, Any])
assert_type(read_one("d1"), dict[str, Any])
assert_type(read_bare.enqueue("d1").result(), dict[Any, Any])
assert_type(read_any.enqueue("d1"), TaskJob[Any])
assert_type(fetch_one.enqueue("d1").result(), dict[str, Any])
assert_type(fetch_any.enqueue("d1"), TaskJob[Any])
assert_type(plain_one.enqueue("d1").result(), dict[str, Any])
assert_type(plain_any.enqueue("d1"), TaskJob[Any])
assert_type(afetch_plain.enqueue("d1"), TaskJob[Any])
assert_type(takes_anything.enqueue(None, "d1"), TaskJob[int])
assert_type(read_one.using(priority=1).enqueue("d1").result(), dict[str, Any])
assert_type(fetch_one.enqueue_many([{"document": "d1"}]), list[TaskJob[dict[str, Any]]])
assert_type(fetch_one.s("d1").enqueue(), TaskJob[dict[str, Any]])
assert_type((double.s(1) | plain_one.s()).enqueue(), TaskJob[dict[str, Any]])
assert_type(double.s(1) | group(double.s(), double.s()), Group)
assert_type(double.s(1) | group(double.s(), double.s()) | report.s(), Chain[None])
assert_type(double.s(1) | group(double.s()).then(plain_one.s()), Chain[dict[str, Any]])
assert_type(double.s(1) | (double.s() | double.s()), Chain[int])
assert_type((double.s(1) | group(double.s())).outcomes().then(double.s()), Chain[int])
double.s(1) | double  # wrong
double.s(1) | 1  # wrong
group(double.s(1)).then(double)  # wrong
read_one.enqueue(1)  # wrong
read_one.enqueue()  # wrong
read_one.enqueue("d1", 2)  # wrong
read_one(1)  # wrong
read_one.using(priority=1).enqueue(1)  # wrong
read_bare.enqueue(1)  # wrong
read_bare.enqueue()  # wrong
read_any.enqueue(1)  # wrong
read_any.enqueue()  # wrong
fetch_one.enqueue(1)  # wrong
fetch_one.enqueue()  # wrong
fetch_any.enqueue(1)  # wrong
fetch_any.enqueue()  # wrong
plain_one.enqueue(1)  # wrong
plain_one.enqueue()  # wrong
plain_any.enqueue(1)  # wrong
plain_any.enqueue()  # wrong
afetch_plain.enqueue(1)  # wrong
afetch_plain.enqueue()  # wrong
takes_anything.enqueue("d1", 2)  # wrong


async def fetch() -> None:
    assert_type(await fetch_one("d1"), dict[str, Any])
    assert_type(await (await fetch_one.aenqueue("d1")).aresult(), dict[str, Any])
    assert_type(await (await read_one.aenqueue("d1")).aresult(), dict[str, Any])
    await fetch_one(1)  # wrong
    await fetch_any.aenqueue(1)  # wrong
    await read_any.aenqueue()  # wrong


@app.schedule("0 3 * * *", tz="Europe/Zurich")
@app.task()
async def nightly(days: int = 30) -> str:
    return str(days)


assert_type(nightly.enqueue(7), TaskJob[str])
assert_type(nightly.enqueue(days=7), TaskJob[str])
app.schedule(every="5m", catch_up="all", priority=3)(double, 21)
app.schedule(every="5m")(double, number=21)
app.schedule(every="5m")(double, "21")  # wrong
app.schedule(every="5m")(double)  # wrong
app.schedule(every="5m", catch_up="some")(double, 21)  # wrong
app.schedule(every="5m", prioriy=3)(double, 21)  # wrong
app.schedule(every="5m")(read_one, "d1")
app.schedule(every="5m")(read_one, 1)  # wrong
app.schedule(every="5m")(fetch_any)  # wrong
app.schedule(every="5m")(plain_any)  # wrong


@app.schedule(every="5m")
@app.task()
def hourly(ctx: Context) -> dict[str, int]:
    return {"tries": ctx.tries}


@app.schedule(every="1d")
@app.task()
async def daily(days: int = 1) -> dict[str, int]:
    return {"days": days}


assert_type(daily.enqueue(3).result(), dict[str, int])
daily.enqueue("3")  # wrong
assert_type(hourly.enqueue().result(), dict[str, int])
hourly.enqueue(1)  # wrong


@app.task(retries=3)  # wrong
def triple(number: int) -> int:
    return number * 3


def wait(failures: int) -> float:
    return failures * 10


def look(failures: int, error: Exception) -> str:
    return "1m" if isinstance(error, TimeoutError) else f"{failures}s"


def tell(ctx: Context, error: Exception, final: bool) -> None:
    ctx.log(f"{error} {final}")


async def atell(ctx: Context, error: Exception, final: bool) -> None:
    await ctx.alog(f"{error} {final}")


@app.task(backoff="15m", on_failure=tell, keep_result=False)
def first() -> None: ...


@app.task(backoff=[1, "5s", "1m"], on_failure=atell)
def second() -> None: ...


@app.task(backoff=Backoff.linear("5s", jitter=0.1))
def third() -> None: ...


@app.task(backoff=wait)
def fourth() -> None: ...


@app.task(backoff=look)
def fifth() -> None: ...


@app.task(backoff=tell)  # wrong
def sixth() -> None: ...


@app.task(on_failure=wait)  # wrong
def seventh() -> None: ...


@app.task(keep_result="no")  # wrong
def eighth() -> None: ...


first.using(backoff=[1, 2], headers={"tenant": "acme"}).enqueue()
first.using(backoff=wait).enqueue()  # wrong
first.using(headers={"tenant": 1}).enqueue()  # wrong
first.using(on_failure=tell).enqueue()  # wrong
Backoff.exponential(factor="2")  # wrong


@app.task()
def chatty(ctx: Context, number: int) -> int:
    ctx.progress(0.4, "message")
    ctx.progress("half")  # wrong
    ctx.log(number)  # wrong
    ctx.publish({"number": number}, type="number")
    ctx.stream("text")
    ctx.stream(number)  # wrong
    ctx.touch()
    return number


assert_type(chatty(1), int)


@app.task()
def paid(ctx: Context, number: int) -> int:
    with ctx.transaction(sqlite3.connect("shop.db")) as ending:
        ending.result = number
        return number


assert_type(paid.enqueue(1), TaskJob[int])


@app.around_enqueue
def add_tenant(topic: str, headers: dict[str, str]) -> Iterator[None]:
    headers["tenant"] = topic
    yield


@app.around_run
async def with_tenant(ctx: Context) -> AsyncIterator[None]:
    assert ctx.job.headers["tenant"]
    yield


@app.around_run  # wrong
def blocking(ctx: Context) -> Iterator[None]:
    yield


def read(job: Job) -> None:
    assert_type(job.progress, float | None)
    assert_type(app.jobs.logs(job), list[LogLine])
    assert_type(next(app.jobs.stream(job)), Event | StreamEnd)


def speak(lease: Lease) -> None:
    words = app.jobs.say(lease, said=0, progress=0.5, lines=["a"], logged=0, events=[{"n": 1}])
    assert_type(words, Said)
    app.jobs.say(lease, progress=0.5)  # wrong
    app.jobs.say(lease, said=0, lines=[1])  # wrong
