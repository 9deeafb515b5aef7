"""Webhooks: a delivery, an outage of the receiver, and the requeue of what failed meanwhile."""

import os
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from towpath import App
from towpath.demo.parts import started
from towpath.model.sealing import VARIABLE, new_key
from towpath.webhooks import verify
from towpath.webhooks.running import Deliveries

CHANNEL: Final = "orders"
PATIENCE: Final = 60.0  # seconds


def app_of(url: str) -> App:
    """Return an app that may call this machine, which no app may by default."""
    return App(url, webhook_http=True, webhook_allow="127.0.0.0/8")


def deliver(url: str) -> None:
    """Deliver webhooks."""
    with app_of(url) as app:
        Deliveries(app, grace=0.1).run()


class Receiver:
    """A receiver on this machine: it keeps the ids of what is signed by its secret."""

    def __init__(self) -> None:
        self.secret = ""
        self.ids: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._address = self._server.server_address
        self._serve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take no more requests."""
        self.go_down()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._address[1]}/hooks"

    def go_down(self) -> None:
        """Refuse connections."""
        self._server.shutdown()
        self._server.server_close()

    def come_back(self) -> None:
        """Listen again, at the same address."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._address[1]), self._handler())
        self._serve()

    def _serve(self) -> None:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.ids.append(verify(dict(self.headers.items()), body, receiver.secret).id)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Leave the screen to the demo."""

        return Handler


def show(url: str) -> bool:
    """Show three deliveries of two events; say whether both have arrived, once."""
    os.environ[VARIABLE] = new_key()  # for this process and the one that delivers
    console = Console()
    with app_of(url) as app, Receiver() as receiver:
        app.migrate()
        _, receiver.secret = app.webhooks.create(CHANNEL, receiver.url, waits=["1s"])
        with Live(console=console, refresh_per_second=10) as live, started(("deliver", url)):

            def show_until(is_so: Callable[[], object], told: str) -> None:
                began = time.monotonic()
                while not is_so() and time.monotonic() - began < PATIENCE:
                    live.update(table(app, told))
                    time.sleep(0.05)
                live.update(table(app, told))

            events = [app.events.publish(CHANNEL, {"order": 1}, type="order.paid")]
            show_until(lambda: has_ended(app, 1), "the receiver takes what it gets")
            receiver.go_down()
            events.append(app.events.publish(CHANNEL, {"order": 2}, type="order.paid"))
            told = "the receiver is down: the event is tried twice, and becomes a dead letter"
            show_until(app.webhooks.dead_letters.list, told)
            receiver.come_back()
            for letter in app.webhooks.dead_letters.list():
                app.webhooks.dead_letters.requeue(letter.id)
            told = "the receiver is back, and the dead letter is requeued"
            show_until(lambda: has_ended(app, 3), told)
    has_all = receiver.ids == [str(event.id) for event in events]
    console.print(
        "\nBoth events have arrived, signed, each once. The outage has left a dead letter, which "
        "was delivered again under the same webhook-id."
        if has_all
        else "\nThe receiver has not got each event once."
    )
    return has_all


def has_ended(app: App, count: int) -> bool:
    """Say whether there are so many sagas, and all have ended."""
    sagas = app.webhooks.sagas.list()
    return len(sagas) == count and all(saga.finished_at for saga in sagas)


def table(app: App, told: str) -> Table:
    """Return a table of the sagas."""
    shown = Table(title="Towpath: webhooks, and a receiver that goes down", caption=told)
    for name in ("saga", "webhook-id", "attempts", "status", "last error"):
        shown.add_column(name)
    for saga in reversed(app.webhooks.sagas.list()):
        end = f"…{str(saga.event)[-6:]}"
        row = (saga.id, end, saga.attempts, saga.status, saga.last_error or "")
        shown.add_row(*map(str, row))
    return shown
