"""A receiver over HTTP in threads, for senders in other processes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(frozen=True)
class Arrival:
    """A request that has arrived."""

    event: str  # its webhook-id
    subscription: str
    timestamp: str
    body: bytes


class HttpReceiver:
    """Keeps what arrives, and answers with the status that a function chooses."""

    def __init__(self, status: Callable[[Arrival], int] = lambda _: 204) -> None:
        self.arrivals: list[Arrival] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                names = ("webhook-id", "towpath-subscription", "webhook-timestamp")
                arrival = Arrival(*(self.headers[name] for name in names), body)
                receiver.arrivals.append(arrival)
                self.send_response(status(arrival))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None: ...  # the sender was killed

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
