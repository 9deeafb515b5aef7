"""What type checkers say of tasks: a line marked `wrong` is refused, and no other."""

from typing import assert_type

from towpath import App, AsyncTask, BlockingTask, Context, TaskJob

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
