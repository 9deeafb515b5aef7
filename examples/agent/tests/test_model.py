"""A model behind a setting, played by a little server."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from agent import chats, model
from agent.tasks import app, spoken
from towpath.testing import IsolatedJobs

CHAT = "a-chat-that-is-a-secre"


class Fake(BaseHTTPRequestHandler):
    """Answers each request with the next of its `answers`: words, and whether it breaks off."""

    answers: ClassVar[list[tuple[list[str], bool]]] = []
    asked: ClassVar[list[tuple[str, str | None, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        words, breaks_off = self.answers.pop(0)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in words:
            self._send({"choices": [{"delta": {"content": word}, "finish_reason": None}]})
        if not breaks_off:
            self._send({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, event: object) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Fake]]:
    Fake.answers, Fake.asked = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Fake) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(model, "URL", f"http://127.0.0.1:{server.server_port}/v1/")
        monkeypatch.setattr(model, "KEY", "a key")
        monkeypatch.setattr(model, "MODEL", "small")
        yield Fake
        server.shutdown()
        thread.join()


def ask(client: TestClient, question: str) -> str:
    turn = str(uuid4())
    client.post(f"/c/{CHAT}/turns", json={"id": turn, "question": question}).raise_for_status()
    return turn


def test_the_words_of_a_model_are_the_answer(
    jobs: IsolatedJobs, client: TestClient, fake: type[Fake]
) -> None:
    fake.answers = [(["It ", "is ", "fine."], False), (["So ", "what?"], False)]

    ask(client, "How is the weather?")
    jobs.run()
    ask(client, "Really?")
    jobs.run()

    assert [turn.answer for turn in chats.turns(CHAT)] == ["It is fine.", "So what?"]
    path, key, body = fake.asked[1]
    assert (path, key) == ("/v1/chat/completions", "Bearer a key")
    assert (body["model"], body["stream"]) == ("small", True)
    assert [message["content"] for message in body["messages"]] == [
        "How is the weather?",
        "It is fine.",
        "Really?",
    ]


def test_a_model_that_breaks_off_is_asked_again(
    jobs: IsolatedJobs, client: TestClient, fake: type[Fake]
) -> None:
    fake.answers = [(["It ", "is "], True), (["All ", "is ", "well."], False)]
    turn = ask(client, "How is the weather?")

    jobs.run(raises=False)
    assert chats.turns(CHAT)[0].answer is None
    jobs.clock.advance("2s")
    jobs.run()

    assert chats.turns(CHAT)[0].answer == "All is well."
    page = app.events.read(f"job:{turn}")
    assert "towpath.try" in [event.type for event in page.events]
    assert (spoken(page.events), page.ended) == ("All is well.", "completed")


def test_an_answer_that_fails_again_and_again_ends(
    jobs: IsolatedJobs, client: TestClient, fake: type[Fake]
) -> None:
    fake.answers = [(["It "], True)] * 3
    turn = ask(client, "How is the weather?")

    for _ in range(3):
        jobs.run(raises=False)
        jobs.clock.advance("2s")

    assert app.events.read(f"job:{turn}").ended == "failed"
    assert fake.answers == []
