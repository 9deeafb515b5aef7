"""An application for uvicorn whose task runs until a file is there."""

import asyncio
import contextlib
import os
from pathlib import Path

from fastapi import FastAPI

from towpath import App
from towpath.integrations.starlette import lifespan

app = App()
here = Path(os.environ["API_DIRECTORY"])


def note(line: str) -> None:
    with (here / "notes").open("a") as file:
        file.write(f"{line}\n")


@app.task()
async def wait_for(name: str) -> str:
    note("task begins")
    while not (here / name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    note("task ends")
    return name


@contextlib.asynccontextmanager
async def own(api: FastAPI):
    note("own begins")
    yield
    note("own ends")


api = FastAPI(lifespan=lifespan(app, own))


@api.post("/jobs")
async def enqueue(name: str) -> str:
    return str((await wait_for.aenqueue(name)).id)
