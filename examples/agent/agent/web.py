"""The page, and what it asks for: `uvicorn agent.web:site`.

The link of a chat is its key: whatever has it may read the chat, ask and stop. The rules let the
same callers read the channel of the chat and the streams of its jobs, and nothing else.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent import chats
from agent.tasks import answer, app
from towpath import Limit
from towpath.errors import Conflict, NotFound
from towpath.server import Api

PAGE: Final = Path(__file__).parent / "page"
MOST_QUESTION: Final = 4_000  # characters
MOST_BODY: Final = 6 * MOST_QUESTION + 1_000  # bytes; JSON may spell a character as \uXXXX

RULES: Final = {
    "chat:": {"subscribe_rule": "@channel.rest = @request.query.chat"},
    "job:": {"subscribe_rule": "@job.topic = 'answer' && @job.payload.chat = @request.query.chat"},
}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",  # the link of a chat is its key
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def ask(chat: str, turn: UUID, question: str) -> None:
    """Store a question, the job that answers it, and the event that tells every open page.

    All three are committed, or none. To ask again with the same id changes nothing.
    """
    with chats.transaction() as db:
        chats.add(db, chat, turn, question)
        # The questions of a chat are answered one after the other.
        one_by_one = Limit(f"chat:{chat}", concurrency=1)
        answer.using(id=turn, limit=one_by_one, connection=db).enqueue(chat, str(turn))
        asked = {"id": str(turn), "question": question}
        app.events.publish(f"chat:{chat}", asked, type="asked", key=str(turn), connection=db)


async def new_chat(_: Request) -> Response:
    return RedirectResponse(f"/c/{secrets.token_urlsafe(16)}", status_code=303)


async def show_page(request: Request) -> Response:
    chat_of(request)
    return FileResponse(PAGE / "index.html")


async def read_turns(request: Request) -> Response:
    chat = chat_of(request)
    # The cursor first: what is asked meanwhile comes behind it, perhaps a second time.
    cursor = await app.events.aposition(f"chat:{chat}")
    turns = await asyncio.to_thread(chats.turns, chat)
    return JSONResponse({"cursor": cursor, "turns": [turn._asdict() for turn in turns]})


async def add_turn(request: Request) -> Response:
    chat = chat_of(request)
    turn, question = await asked_by(request)
    try:
        await asyncio.to_thread(ask, chat, turn, question)
    except Conflict as error:
        raise HTTPException(409, "another question has this id") from error
    return JSONResponse({"id": str(turn), "question": question, "answer": None}, 201)


async def stop_turn(request: Request) -> Response:
    chat, turn = chat_of(request), request.path_params["turn"]
    if all(turn != UUID(each.id) for each in await asyncio.to_thread(chats.turns, chat)):
        raise HTTPException(404)
    with suppress(Conflict, NotFound):  # it has ended, and its stream says how
        await app.jobs.acancel(turn)
    return Response(status_code=204)


def chat_of(request: Request) -> str:
    chat: str = request.path_params["chat"]
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", chat):
        raise HTTPException(404)
    return chat


async def asked_by(request: Request) -> tuple[UUID, str]:
    """Return the id and the question of a request."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            raise HTTPException(413, f"a question has at most {MOST_QUESTION:,} characters")
    try:
        sent: Any = json.loads(body)
        turn, question = UUID(sent["id"]), sent["question"].strip()
        question.encode()  # refuses half of a surrogate pair
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HTTPException(400, 'send {"id": a UUID, "question": text}') from error
    if not 0 < len(question) <= MOST_QUESTION or "\0" in question:
        raise HTTPException(400, f"a question has 1 to {MOST_QUESTION:,} characters")
    return turn, question


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    await asyncio.to_thread(chats.prepare)
    await app.access.aset(channels=RULES)
    # Without any worker, upkeep still ends what has expired and what was stopped.
    await asyncio.to_thread(app.upkeep.start)
    yield
    await asyncio.to_thread(app.close)


class WithHeaders:
    """Adds HEADERS to every answer that does not have its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


site = Starlette(
    routes=[
        Route("/", new_chat),
        Route("/c/{chat}", show_page),
        Route("/c/{chat}/turns", read_turns, methods=["GET"]),
        Route("/c/{chat}/turns", add_turn, methods=["POST"]),
        Route("/c/{chat}/turns/{turn:uuid}/stop", stop_turn, methods=["POST"]),
        Mount("/page", StaticFiles(directory=PAGE)),
        Mount("/queue", Api(app)),
    ],
    middleware=[Middleware(WithHeaders)],
    lifespan=lifespan,
)
