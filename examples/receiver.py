"""FastAPI: a webhook is verified, stored as a job and answered; the same one again adds nothing.

pip install towpath fastapi uvicorn
WEBHOOK_SECRETS=whsec_… uvicorn receiver:api
"""

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from towpath import App
from towpath.errors import InvalidSignature
from towpath.integrations.starlette import lifespan
from towpath.webhooks import job_id, verify

SECRETS = os.environ["WEBHOOK_SECRETS"].split()  # two, while the old one is being replaced
app = App()  # on TOWPATH_DATABASE, or sqlite:///towpath.db


# A sender repeats a webhook for three days or longer: until then its job must not be forgotten.
@app.task(retention="7d", max_retries=5)
async def on_event(type: str, data: dict[str, Any]) -> str:
    return f"{type} with {', '.join(sorted(data))}"


api = FastAPI(lifespan=lifespan(app))  # the worker runs in the same event loop


@api.post("/webhooks/shop", status_code=204)
async def receive(request: Request) -> None:
    try:
        received = verify(request.headers, await request.body(), SECRETS)
    except InvalidSignature as error:
        raise HTTPException(401, str(error)) from error
    event = received.payload
    task = on_event.using(id=job_id("shop", received.id))
    await task.aenqueue(event["type"], event["data"])
