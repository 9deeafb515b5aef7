"""The chat of examples/agent: its own tests, and real processes that are killed in mid-answer."""

import re
import secrets
import subprocess
import sys

import pytest

from tests.agents import AGENT, Agent, Reader, kill
from tests.conftest import eventually
from tests.integrations.test_shop import environment

QUESTION = "How do you survive?"
MODEL = (AGENT / "agent" / "model.py").read_text()
[OWN_TEXT] = re.findall(r'^OWN_TEXT: Final = """\\\n(.*?)"""$', MODEL, re.DOTALL | re.MULTILINE)
TEXT = OWN_TEXT.replace("\\\n", "").replace("{question}", QUESTION)


@pytest.fixture
def agent(new_database, tmp_path):
    with Agent(new_database, tmp_path) as agent:
        yield agent


@pytest.fixture
def chat():
    return secrets.token_urlsafe(16)


def test_the_tests_of_the_agent():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=AGENT,
        env=environment(),
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
    )

    assert re.search(r"^14 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_no_word_is_lost_or_doubled_though_everything_is_killed(agent, chat):
    """EV-5, EV-8: the server and the worker in mid-answer, and a reader that comes later."""
    server, worker = agent.serve(), agent.work()
    turn = agent.ask(chat, QUESTION)
    first = Reader(agent, chat, turn)
    eventually(lambda: len(first.text) > len(TEXT) // 4)

    kill(server)  # and the worker speaks on
    agent.serve()
    eventually(lambda: len(first.text) > len(TEXT) // 2)
    kill(worker)
    second = Reader(agent, chat, turn)
    agent.work()

    eventually(lambda: first.ended and second.ended)
    assert (first.text, first.ended) == (TEXT, "completed")
    assert (second.text, second.ended) == (TEXT, "completed")
    assert agent.turns(chat) == [{"id": turn, "question": QUESTION, "answer": TEXT}]


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_stop_ends_the_job_and_not_only_the_picture(agent, chat):
    agent.serve()
    agent.work()
    question = "word " * 700 + "?"  # its answer repeats it, which takes long
    turn = agent.ask(chat, question)
    reader = Reader(agent, chat, turn)
    eventually(lambda: len(reader.text) > 40)

    agent.stop(chat, turn)

    eventually(lambda: reader.ended)
    assert reader.ended == "cancelled"
    assert f"You asked: “{question}".startswith(reader.text)
    assert agent.turns(chat) == [{"id": turn, "question": question, "answer": None}]
    following = Reader(agent, chat, agent.ask(chat, QUESTION))
    eventually(lambda: following.text)
