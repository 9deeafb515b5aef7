"""What type checkers say of tasks: a line marked `wrong` is refused, and no other."""

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from towpath import App, AsyncTask, Backoff, BlockingTask, Context, Job, Lease, LogLine, TaskJob

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


assert_type(double, BlockingTask[[int], int] | None)  # wrong
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


def take(task: AsyncTask[[str], None]) -> None: ...


take(report)
take(double)  # wrong


@app.schedule("0 3 * * *", tz="Europe/Zurich")
@app.task()
async def nightly(days: int = 30) -> str:
    return str(days)


assert_type(nightly.enqueue(7), TaskJob[str])
app.schedule(every="5m", catch_up="all", priority=3)(double, 21)
app.schedule(every="5m")(double, number=21)
app.schedule(every="5m")(double, "21")  # wrong
app.schedule(every="5m")(double)  # wrong
app.schedule(every="5m", catch_up="some")(double, 21)  # wrong
app.schedule(every="5m", prioriy=3)(double, 21)  # wrong


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
    ctx.publish({"number": number})
    ctx.touch()
    return number


assert_type(chatty(1), int)


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
    assert_type([event.cursor for event in app.jobs.events(job)], list[int])


def speak(lease: Lease) -> None:
    app.jobs.say(lease, said=0, progress=0.5, lines=["a"], events=[{"n": 1}])
    app.jobs.say(lease, progress=0.5)  # wrong
    app.jobs.say(lease, said=0, lines=[1])  # wrong
