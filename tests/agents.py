"""The chat of examples/agent, as real processes that a test kills and starts again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Self
from uuid import uuid4

import httpx

from tests.clients.serving import free_port
from tests.conftest import eventually

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "examples" / "agent"
PAUSE = 0.02  # seconds between two words
Process = subprocess.Popen[bytes]


class Agent:
    """A server on one port, and workers, of one database."""

    def __init__(self, database: str, directory: Path) -> None:
        self.port = free_port()  # a restart does not change it
        self.url = f"http://127.0.0.1:{self.port}"
        self.is_closed = False
        self._log = directory / "log"
        self._processes = list[Process]()
        known = {name: text for name, text in os.environ.items() if not name.startswith("AGENT_")}
        named = {"DATABASE_URL": database, "PYTHONPATH": f"{ROOT / 'src'}"}
        self._environment = {**known, **named, "AGENT_PAUSE": str(PAUSE)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True
        for process in self._processes:
            process.kill()
            process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def serve(self) -> Process:
        """Start the server, and wait until it answers."""
        server = self._start("uvicorn", "agent.web:site", "--port", str(self.port))

        def answers() -> bool:
            assert server.poll() is None, self.log
            try:
                return httpx.get(f"{self.url}/page/icon.svg", timeout=10).is_success
            except httpx.TransportError:
                return False

        eventually(answers)
        return server

    def work(self) -> Process:
        return self._start("towpath", "worker")

    def _start(self, *command: str) -> Process:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=AGENT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def ask(self, chat: str, question: str = "why?") -> str:
        """Ask a question; return its id."""
        turn = str(uuid4())
        body = {"id": turn, "question": question}
        httpx.post(f"{self.url}/c/{chat}/turns", json=body, timeout=60).raise_for_status()
        return turn

    def turns(self, chat: str) -> list[dict[str, str | None]]:
        found = httpx.get(f"{self.url}/c/{chat}/turns", timeout=60).raise_for_status()
        return list(found.json()["turns"])

    def stop(self, chat: str, turn: str) -> None:
        stopping = f"{self.url}/c/{chat}/turns/{turn}/stop"
        httpx.post(stopping, timeout=60).raise_for_status()


def kill(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


class Reader(Thread):
    """Reads an answer as server-sent events, from a cursor on, however often it is cut off."""

    def __init__(self, agent: Agent, chat: str, turn: str) -> None:
        super().__init__(daemon=True)
        self.text = ""
        self.cursor = "-1"
        self.tries = 0
        self.ended = ""
        self._agent = agent
        self._path = f"/queue/v1/stream/job:{turn}?live=sse&chat={chat}"
        self.start()

    def run(self) -> None:
        while not self.ended and not self._agent.is_closed:
            try:
                self._read()
            except httpx.TransportError:  # the server is gone
                time.sleep(0.05)

    def _read(self) -> None:
        address = f"{self._agent.url}{self._path}&offset={self.cursor}"
        kind = cursor = ""
        # It looks at no variables: pytest changes them meanwhile, in another thread.
        with httpx.stream("GET", address, timeout=60, trust_env=False) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if found := re.fullmatch("(id|event): (.*)", line):
                    kind, cursor = (found[2], cursor) if found[1] == "event" else (kind, found[2])
                elif line.startswith("data:"):
                    self._take(kind, json.loads(line.removeprefix("data:")))
                    self.cursor = cursor

    def _take(self, kind, told) -> None:
        if kind == "control":
            self.ended = told.get("towpathEnded", "")
            return
        for word in told:
            if isinstance(word, str):
                self.text += word
            else:
                # For now every try drops all that was said before.
                assert set(word["towpath"]) == {"try", "since", "after"}
                self.text = ""
                self.tries += 1
