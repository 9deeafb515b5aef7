"""FastAPI: one endpoint enqueues a job, another tells what became of it.

pip install towpath fastapi uvicorn
uvicorn fastapi_reports:api
curl -X POST 'localhost:8000/reports?title=boats'
curl localhost:8000/reports/<id>
"""

import asyncio
from uuid import UUID

from fastapi import FastAPI, HTTPException

from towpath import App
from towpath.errors import NotFound
from towpath.integrations.starlette import lifespan

app = App()  # on TOWPATH_DATABASE, or sqlite:///towpath.db


@app.task(timeout="1m")
async def write_report(title: str) -> str:
    await asyncio.sleep(0.1)
    return f"All about {title}"


api = FastAPI(lifespan=lifespan(app))  # the worker runs in the same event loop


@api.post("/reports", status_code=202)
async def order_report(title: str) -> dict[str, str]:
    job = await write_report.aenqueue(title)
    return {"id": str(job.id)}


@api.get("/reports/{id}")
async def read_report(id: UUID) -> dict[str, str | None]:
    try:
        job = await app.jobs.aget(id)
    except NotFound as error:
        raise HTTPException(404) from error
    return {"status": job.status, "report": job.returned}
