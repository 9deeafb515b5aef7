"""`pytest`: no server, no worker, no sleep. A test runs the jobs itself and moves the clock."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.testclient import TestClient

from agent import chats
from agent.model import OWN_TEXT
from agent.tasks import answer, app, messages_before, spoken
from towpath.testing import IsolatedJobs

CHAT = "a-chat-that-is-a-secret"[:22]
OTHER = "another-secret-of-mine"


def ask(client: TestClient, question: str = "why?", chat: str = CHAT) -> str:
    turn = str(uuid4())
    sent = client.post(f"/c/{chat}/turns", json={"id": turn, "question": question})
    assert sent.status_code == 201
    return turn


def read(client: TestClient, turn: str, chat: str = CHAT) -> httpx.Response:
    return client.get(f"/queue/v1/stream/job:{turn}?chat={chat}")


def test_a_question_is_stored_with_its_job_and_its_event(
    jobs: IsolatedJobs, client: TestClient
) -> None:
    turn = ask(client)

    assert chats.turns(CHAT) == [(turn, "why?", None)]
    jobs.assert_enqueued(answer, CHAT, turn)
    [event] = app.events.read(f"chat:{CHAT}").events
    assert (event.type, event.payload) == ("asked", {"id": turn, "question": "why?"})


def test_a_request_that_fails_stores_none_of_them(
    jobs: IsolatedJobs, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError  # the row and the job are written before

    monkeypatch.setattr(app.events, "publish", broken)
    with pytest.raises(RuntimeError):
        ask(client)

    assert chats.turns(CHAT) == []
    jobs.assert_nothing_enqueued()


def test_a_question_that_is_sent_again_is_asked_once(
    jobs: IsolatedJobs, client: TestClient
) -> None:
    turn = ask(client)

    again = client.post(f"/c/{CHAT}/turns", json={"id": turn, "question": "why?"})

    assert again.status_code == 201
    assert len(chats.turns(CHAT)) == 1
    assert len(jobs.run()) == 1
    assert len(app.events.read(f"chat:{CHAT}").events) == 1
    elsewhere = client.post(f"/c/{OTHER}/turns", json={"id": turn, "question": "why?"})
    assert elsewhere.status_code == 409
    assert chats.turns(OTHER) == []


def test_the_answer_is_stored_when_its_stream_ends(jobs: IsolatedJobs, client: TestClient) -> None:
    turn = ask(client)

    jobs.run()

    text = OWN_TEXT.format(question="why?")
    assert chats.turns(CHAT) == [(turn, "why?", text)]
    page = app.events.read(f"job:{turn}")
    assert (spoken(page.events), page.ended) == (text, "completed")
    shown = client.get(f"/c/{CHAT}/turns").json()
    assert shown["turns"] == [{"id": turn, "question": "why?", "answer": text}]
    assert app.events.read(f"chat:{CHAT}", shown["cursor"]).events == []


def test_a_model_reads_what_was_said_before(jobs: IsolatedJobs, client: TestClient) -> None:
    ask(client, "one")
    jobs.run()
    turn = ask(client, "two")
    ask(client, "three")

    messages = messages_before(CHAT, turn)

    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[-1]["content"] == "two"


def test_the_questions_of_a_chat_are_answered_one_by_one(client: TestClient) -> None:
    for question in ("one", "two"):
        ask(client, question)

    assert len(app.jobs.reserve("answer", limit=10)) == 1


def test_stop_ends_the_stream(jobs: IsolatedJobs, client: TestClient) -> None:
    turn = ask(client)
    stop = f"/c/{CHAT}/turns/{turn}/stop"

    assert client.post(f"/c/{OTHER}/turns/{turn}/stop").status_code == 404
    assert client.post(stop).status_code == 204
    assert client.post(stop).status_code == 204

    assert read(client, turn).headers["towpath-ended"] == "cancelled"
    assert jobs.run() == []


def test_a_question_that_no_worker_takes_is_given_up(
    jobs: IsolatedJobs, client: TestClient
) -> None:
    turn = ask(client)

    jobs.clock.advance("3m")

    assert jobs.run() == []
    assert read(client, turn).headers["towpath-ended"] == "expired"


def test_only_the_link_of_a_chat_opens_it(jobs: IsolatedJobs, client: TestClient) -> None:
    turn = ask(client)
    jobs.run()

    assert json.loads(read(client, turn).content)[0].startswith("You asked")
    assert read(client, turn, OTHER).status_code == 401
    assert client.get(f"/queue/v1/stream/job:{turn}").status_code == 401
    assert client.get(f"/queue/v1/stream/chat:{CHAT}?chat={CHAT}").status_code == 200
    assert client.get(f"/queue/v1/stream/chat:{CHAT}?chat={OTHER}").status_code == 401
    for method, path in (
        ("GET", "/queue/api/jobs"),
        ("GET", f"/queue/api/jobs/{turn}?chat={CHAT}"),
        ("GET", "/queue/api/channels"),
        ("POST", f"/queue/v1/stream/chat:{CHAT}?chat={CHAT}"),
        ("DELETE", f"/queue/v1/stream/chat:{CHAT}?chat={CHAT}"),
    ):
        assert client.request(method, path).status_code in {400, 401}, path


BAD = [
    (400, b""),
    (400, b"[]"),
    (400, b'"text"'),
    (400, b'{"id": 7, "question": "why?"}'),
    (400, b'{"id": "7", "question": "why?"}'),
    (400, b'{"id": "ID"}'),
    (400, b'{"id": "ID", "question": 7}'),
    (400, b'{"id": "ID", "question": " "}'),
    (400, b'{"id": "ID", "question": "\\u0000"}'),
    (400, b'{"id": "ID", "question": "\\ud800"}'),
    (400, b'{"id": "ID", "question": "%s"}' % (b"x" * 4_001)),
    (400, b"[" * 20_000),
    (413, b"x" * 30_000),
]


def test_a_bad_question_is_refused(client: TestClient, jobs: IsolatedJobs) -> None:
    for status, body in BAD:
        sent = body.replace(b"ID", str(uuid4()).encode())
        refused = client.post(f"/c/{CHAT}/turns", content=sent)
        assert refused.status_code == status, body[:80]
    jobs.assert_nothing_enqueued()


def test_the_page_runs_no_foreign_code(client: TestClient) -> None:
    opened: Any = client.get("/")

    assert opened.status_code == 200
    policy = opened.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert opened.headers["referrer-policy"] == "no-referrer"
    assert client.get("/c/guessed").status_code == 404
