"""What answers: a model behind AGENT_MODEL_URL, or a text of our own, word by word.

`answer` yields the whole text. `said` is what a lost try has said, as when its worker was killed:
our own text goes on from there. A model begins again, as it would find other words.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypedDict

URL: Final = os.environ.get("AGENT_MODEL_URL", "")  # such as http://localhost:11434/v1
KEY: Final = os.environ.get("AGENT_MODEL_KEY", "")
MODEL: Final = os.environ.get("AGENT_MODEL", "")
PAUSE: Final = float(os.environ.get("AGENT_PAUSE", "0.06"))  # seconds between two words
SILENCE: Final = 60.0  # seconds without a word, after which a model counts as lost

OWN_TEXT: Final = """\
You asked: “{question}”. I am no language model, only a text that arrives word by word. But how \
it reaches you is real.

A worker says these words into the stream of its job. Each is stored in the database before you \
see it, and every few have a number. Your browser remembers the last number that it has shown. \
Whenever the connection breaks, it asks for what comes after that number, so it misses nothing \
and shows nothing twice.

Now break something. Reload this page, or open its link in a second tab or on your phone: the \
whole answer is there, and goes on. Stop the server: the page says that it is trying again, and \
catches up once the server is back. Kill the worker that is writing this sentence: after three \
seconds another worker takes the job, reads what was said, and finishes the sentence. If the \
first one was not dead but merely slow, its late words are refused.

The stop button cancels the job itself, not just the picture on your screen. And when the answer \
is complete, one transaction stores its text, marks the job as completed and ends the stream. \
There is no moment at which one of these is true and another is not."""


class Message(TypedDict):
    role: str
    content: str


def answer(messages: Sequence[Message], said: str) -> AsyncIterator[str]:
    """Return the answer to the last message, in pieces."""
    return model_answer(messages) if URL else own_answer(messages[-1]["content"], said)


async def own_answer(question: str, said: str) -> AsyncIterator[str]:
    text = OWN_TEXT.format(question=question.strip())
    if said and text.startswith(said):
        yield said
        text = text.removeprefix(said)
    for word in re.findall(r"\S+\s*|\s+", text):
        await asyncio.sleep(PAUSE)
        yield word


async def model_answer(messages: Sequence[Message]) -> AsyncIterator[str]:
    """Ask a server that speaks the protocol of OpenAI's chat completions."""
    import httpx  # noqa: PLC0415 - our own text needs nothing

    asked = {"model": MODEL, "messages": messages, "stream": True}
    headers = {"authorization": f"Bearer {KEY}"} if KEY else {}
    async with (
        httpx.AsyncClient(timeout=SILENCE) as client,
        client.stream(
            "POST", f"{URL.rstrip('/')}/chat/completions", json=asked, headers=headers
        ) as response,
    ):
        response.raise_for_status()
        finished = False
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            for choice in json.loads(data).get("choices", ()):
                if piece := choice.get("delta", {}).get("content"):
                    yield piece
                finished = finished or choice.get("finish_reason") is not None
    if not finished:  # the connection was cut, which is no end of an answer
        raise ConnectionError("the model broke off in mid-answer")
