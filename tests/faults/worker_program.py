"""A worker in a process of its own: python -m tests.faults.worker_program URL SCHEMA [DEAD_AFTER].

Its tasks live in __main__, also for its sandboxes.
"""

import asyncio
import os
import re
import signal
import sys
import time
from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, text

from towpath import App, Context
from towpath.worker import Worker

URL, SCHEMA, DEAD_AFTER = (*sys.argv[1:], "1.0")[:3]
ORDERS = f"orders_{SCHEMA}"
app = App(URL, schema=SCHEMA, beat_every=0.2, dead_after=float(DEAD_AFTER))


@app.task(max_crashes=2)
async def kill_me() -> None:
    """Take the worker down, before anything shows that it has begun."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task()
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@app.task()
async def spin(seconds: float) -> str:
    """Keep the event loop busy, for longer than a silent worker is thought alive."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


@app.task()
async def note(number: int) -> int:
    return number


@app.task()
async def tell(ctx: Context, text: str, pause: float) -> None:
    """Say a text, letter by letter."""
    for letter in text:
        await ctx.astream(letter)
        await asyncio.sleep(pause)


@app.task(sandbox=True)
def tell_in_sandbox(ctx: Context, text: str, pause: float) -> None:
    for letter in text:
        ctx.stream(letter)
        time.sleep(pause)


@app.task(sandbox=True)
def seize(file: str) -> None:
    """Keep the interpreter of a sandbox to itself, for good."""
    write(Path(file), str(os.getpid()))
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.task(sandbox=True)
def identify() -> int:
    return os.getpid()


@app.task()
def hold(file: str) -> None:
    """Keep a thread for good."""
    write(Path(file), "held")
    time.sleep(600)


@app.task()
def order(ctx: Context) -> None:
    """Store an order; take the first worker down before the commit, and the second after it."""
    with connected() as connection:
        with ctx.transaction(connection):
            connection.execute(text(f"create table if not exists {ORDERS} (epoch integer)"))
            connection.execute(text(f"insert into {ORDERS} values ({ctx.job.epoch})"))  # noqa: S608 - our own
            if ctx.job.epoch == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


@app.task()
def drop_orders(ctx: Context) -> list[int]:
    """Return the epochs that have ordered."""
    with connected() as connection, ctx.transaction(connection) as ending:
        found = connection.execute(text(f"select epoch from {ORDERS}")).scalars().all()  # noqa: S608 - our own
        connection.execute(text(f"drop table {ORDERS}"))
        ending.result = found
    return list(found)


def connected() -> Connection:
    """Open a connection of the user's own."""
    url = URL.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(url, poolclass=NullPool).connect()


# ---------------------------------------------------------------- what the soak counts


@app.task()
async def record(ctx: Context, file: str, pause: float) -> None:
    put_down(ctx, file)
    await asyncio.sleep(pause)


@app.task(concurrency=2)
def record_in_thread(ctx: Context, file: str, pause: float) -> None:
    put_down(ctx, file)
    time.sleep(pause)


@app.task(sandbox=True, concurrency=1)
def record_in_sandbox(ctx: Context, file: str, pause: float) -> None:
    put_down(ctx, file)
    time.sleep(pause)


def put_down(ctx: Context, file: str) -> None:
    """Note in one piece that a job was begun under this lease."""
    with Path(file).open("ab", buffering=0) as to:
        to.write(f"{ctx.job.id} {ctx.job.epoch}\n".encode())


def write(file: Path, text: str) -> None:
    """Write a file that appears when it is whole."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


if __name__ == "__main__":
    print("working", flush=True)  # noqa: T201 - the test waits for it
    Worker(app, concurrency=4, grace=10).run()
