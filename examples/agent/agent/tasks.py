"""The work: one task that answers a question. A worker runs it: `towpath worker`."""

import asyncio
from collections.abc import Iterable
from contextlib import closing

from agent import chats, model
from agent.model import Message
from towpath import App, Context, Event

app = App(chats.URL, beat_every=0.5, dead_after=3)  # a killed worker is missed after 3 s, not 30 s


@app.task(
    timeout="5m",
    expires_after="2m",  # a question that no worker has taken by then gets no answer
    max_retries=3,
    backoff="2s",
    max_crashes=20,  # you are invited to kill workers
    retention="30d",  # a stopped answer is kept in its stream, and nowhere else
)
async def answer(ctx: Context, chat: str, turn: str) -> None:
    messages = await asyncio.to_thread(messages_before, chat, turn)
    text = ""
    async for piece in model.answer(messages, spoken(await ctx.asaid())):
        await ctx.astream(piece)
        text += piece
    await asyncio.to_thread(finish, ctx, turn, text)


def finish(ctx: Context, turn: str, text: str) -> None:
    """Store the answer, complete the job and end its stream: all of it, or nothing."""
    with closing(chats.connect()) as db, ctx.transaction(db):
        chats.keep(db, turn, text)


def messages_before(chat: str, turn: str) -> list[Message]:
    """Return the chat up to a question, as a model reads it."""
    messages: list[Message] = []
    for each in chats.turns(chat):
        messages.append(Message(role="user", content=each.question))
        if each.id == turn:
            break
        if each.answer is not None:
            messages.append(Message(role="assistant", content=each.answer))
    return messages


def spoken(events: Iterable[Event]) -> str:
    """Return the text of a stream: what its last try has said."""
    kept: list[Event] = []
    for event in events:
        if event.type == "towpath.try":
            since = event.payload["towpath"]["since"]
            kept = [each for each in kept if each.cursor is not None and each.cursor <= since]
        elif event.type == "text":
            kept.append(event)
    return "".join(event.payload for event in kept)
