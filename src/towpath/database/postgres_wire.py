"""One connection to PostgreSQL, over which several statements are sent at once.

By libpq's own functions, since psycopg's cursors cost more than what they carry (decision 3).
"""

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from towpath.database.event_loops import running_loop
from towpath.statement import Row

log: Final = logging.getLogger("towpath")


class Sent(NamedTuple):
    """A statement with $1, $2 … and the values of these."""

    text: str
    values: Sequence[Any] = ()


BEGIN: Final = Sent("begin")
COMMIT: Final = Sent("commit")
ROLLBACK: Final = Sent("rollback")
_OPEN: Final = {TransactionStatus.INTRANS, TransactionStatus.INERROR}


class Wire:
    """A connection that sends statements and returns their rows, blocking or not.

    After `patience` seconds of silence `is_worked_on` finds out, in as many seconds, whether the
    server still works on the statements; if it does not, the connection is cut, as a lost one.
    """

    def __init__(self, connection: Connection[Any] | AsyncConnection[Any], patience: float) -> None:
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self.is_pooled = True  # nothing is prepared; True until the set-up finds out
        self.patience = patience
        self.is_worked_on: Callable[[float], bool] = lambda _: False
        self.worked_at = 0.0  # when that last found that it does
        # Behind a pooler only the statement's text tells which process of the server works for it.
        self.mark = f"/* towpath {secrets.token_hex(8)} */ "
        self._names: dict[str, bytes] = {}  # of prepared statements, by their text
        self._numbers = itertools.count()
        self._types = Transformer(connection)
        self._polls = False  # a thread waits
        self._listener: Listener | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._heard_at = 0.0
        self._silence = patience  # that this exchange may have
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0  # the time of the timer
        self._begin()

    def _begin(self) -> None:
        self._new_names: dict[str, bytes] = {}
        self._expected: list[str | None] = []  # results: answers, or the text that gets a name
        self._heard: list[PGresult] = []
        self._unsent = False
        self.said = b""  # the command of the last answer

    @property
    def pid(self) -> int:
        """The server's process for this connection; a pooler invents it."""
        return self._pgconn.backend_pid

    @property
    def address(self) -> dict[str, str]:
        """Where its server is: the one address of perhaps many that answered."""
        at = self._pgconn
        parts = {"host": at.host, "hostaddr": at.hostaddr, "port": at.port}
        return {name: part.decode() for name, part in parts.items() if part}

    def fileno(self) -> int:
        """Return the number of its socket."""
        return self._pgconn.socket

    @property
    def rests(self) -> bool:
        """Whether it is ready for a new transaction."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_in_transaction(self) -> bool:
        """Whether there is something to roll back, and nothing on its way."""
        return self._pgconn.transaction_status in _OPEN

    def exchange(self, asked: Iterable[Sent], patience: float | None = None) -> list[list[Row]]:
        """Ask, and block until all is answered; `patience` is for the first silence."""
        self._polls = True
        silence = self.patience if patience is None else patience
        try:
            self._ask(asked)
            waits = select.poll()
            while not self._advance():
                waits.register(self._pgconn.socket, _BOTH if self._unsent else select.POLLIN)
                if waits.poll(silence * 1_000):
                    continue
                if self.is_worked_on(silence):
                    self.worked_at, silence = time.monotonic(), self.patience
                elif not waits.poll(0):  # the answer may have come meanwhile
                    self._give_up(silence)
            return self._answers()
        finally:
            self._polls = False

    async def aexchange(
        self, asked: Iterable[Sent], patience: float | None = None
    ) -> list[list[Row]]:
        """Ask, and await all answers; always in the same event loop."""
        self._ask(asked)
        if self._listener is None:
            self._listener = Listener(self._pgconn.socket, self._hear)
        self._waiting = self._listener.loop.create_future()
        self._heard_at = time.monotonic()
        self._silence = self.patience if patience is None else patience
        # One timer for many exchanges: it costs more than a look at the clock.
        if self._timer is None or self._look_at > self._heard_at + self._silence:
            self._look_after(self._listener.loop, self._silence)
        if self._unsent:
            self._listener.loop.add_writer(self._listener.line, self._hear)
        await self._waiting
        return self._answers()

    def rings(self) -> list[bytes]:
        """Take the payloads that other connections sent by NOTIFY, while no statement is sent."""
        pgconn = self._pgconn
        pgconn.consume_input()
        rung: list[bytes] = []
        while notification := pgconn.notifies():
            if notification.be_pid != pgconn.backend_pid:
                rung.append(notification.extra)
        return rung

    def _hear(self) -> None:
        """Go on when the socket is ready. If no caller waits, it has ended as a rule."""
        sending = self._unsent
        self._heard_at = time.monotonic()
        try:
            done = self._advance()
            # Not at the next event: after a reset uvloop tells of none.
            while not done and self._listener and self._listener.is_ready:
                done = self._advance()
        except psycopg.Error as error:
            self._stop_listening(error)
            return
        except BaseException:  # the caller must not wait for ever
            self._stop_listening(psycopg.OperationalError("interrupted"))
            raise
        if sending and not self._unsent and self._listener:
            self._listener.loop.remove_writer(self._listener.line)
        if done and self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    def _look_after(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._look_at = time.monotonic() + seconds
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Have a thread find out whether the server still works, after a long silence."""
        self._timer = None
        if not self._listener or not self._waiting or self._waiting.done():
            return  # the next exchange sets the timer again
        loop, since, silence = self._listener.loop, self._heard_at, self._silence
        left = since + silence - time.monotonic()
        if left > 0:
            self._look_after(loop, left)
            return

        def find_out() -> None:
            works = False
            with contextlib.suppress(Exception):  # whatever it is, the exchange stays watched
                works = self.is_worked_on(silence)
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._judge, since, works)

        Thread(target=find_out, name="towpath-probe", daemon=True).start()

    def _judge(self, since: float, works: bool) -> None:  # noqa: FBT001 - a callback
        """Give the connection up if it has been silent since then and the server does not work."""
        if self._listener and self._waiting and not self._waiting.done():
            if self._heard_at == since and not works and not self._listener.is_ready:
                self._give_up(self._silence)
                return
            if self._heard_at == since and works:
                self.worked_at, self._silence = time.monotonic(), self.patience
            if self._timer is None:
                self._look_after(self._listener.loop, self._silence)

    def _give_up(self, silence: float) -> None:
        log.warning(
            "PostgreSQL has not answered for %.3g s and does not work on it: the connection is cut",
            silence,
        )
        self.cut()

    def _stop_listening(self, error: psycopg.Error) -> None:
        """Listen no more; a caller that waits raises the error."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._listener:
            self._listener.stop()
            if self._waiting and not self._waiting.done() and not self._listener.loop.is_closed():
                self._waiting.set_exception(error)
            self._listener = None

    def cut(self) -> None:
        """Cut the connection, from any thread: a caller that waits for an answer raises at once."""
        # Not closed: another file must not get its number while a caller waits on it.
        with (
            contextlib.suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(self._pgconn.socket)) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    def call_off(self) -> None:
        """Have the server end statements that no caller waits for, without waiting for that."""
        if self._pgconn.transaction_status == TransactionStatus.ACTIVE:
            encrypted = psycopg.capabilities.has_cancel_safe()  # if the connection is
            pgconn = self._pgconn
            with contextlib.suppress(psycopg.Error, RuntimeError):
                cancel = pgconn.cancel_conn().blocking if encrypted else pgconn.get_cancel().cancel
                Thread(target=_try, args=(cancel,), daemon=True).start()

    def close(self) -> None:
        """Close the connection, from any thread; a caller that waits for an answer raises."""
        if not self.rests:
            self.cut()
        if self._polls:
            return  # the thread that polls notices the cut, and is the last to hold it
        loop = self._listener.loop if self._listener else None
        if loop is None or loop is running_loop() or not loop.is_running():
            self._close()
            return
        with contextlib.suppress(RuntimeError):  # it has closed just now
            loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._stop_listening(psycopg.OperationalError("the connection was closed"))
        self._pgconn.finish()

    def _ask(self, asked: Iterable[Sent]) -> None:
        """Send statements, as far as the socket takes them; the rest goes out later."""
        self._begin()
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        for text, values in asked:
            given = self._types.dump_sequence(values, [PyFormat.TEXT] * len(values))
            if self.is_pooled:  # the next one may go to another process of the server
                pgconn.send_query_params((self.mark + text).encode(), given)
            else:
                pgconn.send_query_prepared(self._prepared(text), given)
            self._expected.append(None)
        pgconn.pipeline_sync()
        self._unsent = bool(pgconn.flush())

    def _prepared(self, text: str) -> bytes:
        """Return a statement's name, given at its first use; the server finds its types."""
        name = self._names.get(text) or self._new_names.get(text)
        if name is None:
            name = self._new_names[text] = b"towpath_%d" % next(self._numbers)
            self._pgconn.send_prepare(name, text.encode())
            self._expected.append(text)
        return name

    def _advance(self) -> bool:
        """Send and hear what can be; say whether that was all."""
        pgconn = self._pgconn
        if self._unsent:
            self._unsent = bool(pgconn.flush())
        try:
            pgconn.consume_input()
        except psycopg.OperationalError:
            self._raise_heard()  # the server may have given the reason
            raise
        last: PGresult | None = None
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None and last is None:
                break  # one None stands between two results, two stand at the end
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                return True
            if result is not None:
                self._heard.append(result)
            last = result
        return False

    def _answers(self) -> list[list[Row]]:
        """Return the rows of each answer."""
        answers: list[PGresult] = []
        for result, text in zip(self._heard, self._expected, strict=True):
            if text is None:
                answers.append(result)
            elif result.status == ExecStatus.COMMAND_OK:
                self._names[text] = self._new_names[text]  # even if a later statement fails
        self._raise_heard()
        self.said = answers[-1].command_status or b""
        rows = [self._rows(result) for result in answers]
        self._heard.clear()  # an answer may be large
        self._types.set_pgresult(None)
        return rows

    def _raise_heard(self) -> None:
        for result in self._heard:
            if result.status == ExecStatus.FATAL_ERROR:
                raise error_from_result(result, self._types.encoding)

    def _rows(self, result: PGresult) -> list[Row]:
        if not result.ntuples:
            return []
        self._types.set_pgresult(result)
        return self._types.load_rows(0, result.ntuples, tuple)


class Listener:
    """The event loop of this thread listens to a socket all the time: that costs less."""

    def __init__(self, line: int, hear: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        # A descriptor of our own: libpq may close its own, whose number another file then gets.
        self.line = os.dup(line)
        self.loop.add_reader(self.line, hear)
        self._poll = select.poll()
        self._poll.register(self.line, select.POLLIN)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to hear."""
        return bool(self._poll.poll(0))

    def stop(self) -> None:
        """Listen no more; in the loop, or while that does not run."""
        if not self.loop.is_closed():
            self.loop.remove_reader(self.line)
            self.loop.remove_writer(self.line)
        os.close(self.line)


def _try(cancel: Callable[[], None]) -> None:
    with contextlib.suppress(psycopg.Error):
        cancel()


_BOTH: Final = select.POLLIN | select.POLLOUT
