"""Tasks that run in sandboxes. A sandbox imports them again, on the database of the environment."""

import asyncio
import ctypes
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from sqlalchemy.ext.asyncio import create_async_engine

from towpath import App, Backoff, Bury, Context, Retry

app = App()
AT_ONCE = Backoff(first=0.0)


@app.task(sandbox=True)
def where(word: str) -> tuple[str, int]:
    return word, os.getpid()


@app.task(sandbox=True)
async def where_async(word: str) -> tuple[str, int]:
    await asyncio.sleep(0)
    return word, os.getpid()


@app.task(sandbox=True, max_retries=1)
def raise_error(text: str) -> None:
    raise ValueError(text)


@app.task(sandbox=True)
async def choose(ctx: Context, how: str) -> str:
    if how == "retry" and not ctx.tries:
        raise Retry(after=0)
    if how == "bury":
        raise Bury
    return how


@app.task(sandbox=True, max_retries=2, backoff=AT_ONCE)
def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fork and exit":
            if os.fork():
                os._exit(4)
            time.sleep(600)
        case _:
            ctypes.string_at(0)  # a segmentation fault


@app.task(sandbox=True, max_retries=1)
def leave(how: str) -> None:
    if how == "sys.exit":
        sys.exit("enough")
    if how == "interrupt":
        raise KeyboardInterrupt
    leave(how)


@app.task(sandbox=True, memory="300MiB", max_retries=1)
def eat(mebibytes: int) -> int:
    return len(bytearray(mebibytes * 2**20))


@app.task(sandbox=True, max_retries=1)
async def hang(note: str, how: str) -> None:
    """Hear nothing: neither a signal nor that it is cancelled."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(["/bin/sleep", "600"])  # noqa: ASYNC220 - nothing else runs here
    write(note, f"{os.getpid()} {child.pid}")
    if how == "regex":
        re.match(r"(a+)+$", "a" * 64 + "b")  # keeps the interpreter to itself
    time.sleep(600)  # noqa: ASYNC251 - on purpose


@app.task(sandbox=True, max_retries=1)
def return_object() -> object:
    return object()


@app.task(sandbox=True)
def know(ctx: Context) -> tuple[str, str]:
    """Use an app of its own, in the sandbox."""
    return str(ctx.job.id), ctx.app.jobs.get(ctx.job.id).state


def plain() -> None: ...


def write(note: str, text: str) -> None:
    """Write all of it at once."""
    new = Path(f"{note}.new")
    new.write_text(text)
    new.rename(note)


@app.task(sandbox=True, max_retries=1)
def order(ctx: Context, path: str, number: int, *, lose: bool = False) -> str:
    if lose:
        app.jobs.bury(ctx.lease)
    with closing(sqlite3.connect(path)) as connection, ctx.transaction(connection) as ending:
        connection.execute("insert into orders values (?)", (number,))
        ctx.log("ordering")
        ending.result = "ordered"
    return "ordered"


@app.task(sandbox=True, max_retries=1)
def speak(ctx: Context, path: str, *, is_open: bool = False) -> None:
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path)) as other:
        if is_open:
            other.execute("insert into orders values (2)")
        ctx.stream("before ")
        with ctx.transaction(connection):
            connection.execute("insert into orders values (1)")
            ctx.stream("within ")
            time.sleep(0.2)  # more than the time in which words are gathered
            ctx.stream("and at the end")


@app.task(sandbox=True, max_retries=1)
async def aspeak(ctx: Context, path: str) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.connect() as connection:
        ctx.stream("before ")
        async with ctx.transaction(connection):
            await connection.exec_driver_sql("insert into orders values (1)")
            await ctx.astream("within ")
            await asyncio.sleep(0.2)  # more than the time in which words are gathered
            await ctx.astream("and at the end")
    await engine.dispose()
