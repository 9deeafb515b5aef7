"""Tasks to measure a worker by. The environment says on which database."""

import asyncio
import time

from towpath import App

app = App()
woken: list[float] = []  # seconds from each enqueue to the start of its task


@app.task()
async def nothing(to: str, text: str) -> None: ...


@app.task()
def blocking(to: str, text: str) -> None: ...


@app.task(sandbox=True)
def boxed(to: str, text: str) -> None: ...


@app.task()
async def stamped(at: float) -> None:
    woken.append(time.monotonic() - at)


@app.task()
async def lasting() -> None:
    await asyncio.Event().wait()
