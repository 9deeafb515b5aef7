"""One process that serves the API, does upkeep and runs the tasks of its app."""

import asyncio
import contextlib
import gc
import logging
import secrets
import signal
import socket
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

import uvicorn
from msgspec import Struct
from starlette.middleware.cors import CORSMiddleware

from towpath import App
from towpath.app.app import PATIENCE
from towpath.model.accounts import Collection
from towpath.server.api import Api
from towpath.server.beanstalkd.server import BeanstalkdServer
from towpath.server.connections import HttpConnection, Patience
from towpath.server.event_loops import loop_factory
from towpath.server.live.connection import LiveConnection
from towpath.server.prefix import Prefixed
from towpath.server.streams import SENT, TOLD
from towpath.server.system import is_loopback
from towpath.webhooks.running import Deliveries
from towpath.worker import Worker

log: Final = logging.getLogger("towpath")

BACKLOG: Final = 2_048
MOST_UNSENT: Final = 2**16  # bytes that the system takes of a connection beyond what it sends
CLOSING: Final = 1.0  # seconds
CORS_MAX_AGE: Final = 600  # seconds for which a browser caches the answer to a preflight request


class Listening(Struct, frozen=True):
    """The addresses of a server."""

    url: str
    set_up_link: str | None  # set while there is no superuser
    beanstalkd: str | None = None  # host:port


class Serving(Struct, kw_only=True):
    """Serves an app, with these options."""

    app: App
    host: str = "127.0.0.1"
    port: int = 8090
    worker: Worker | None = None
    deliveries: Deliveries | None = None  # of webhooks
    grace: float = 30.0  # seconds for the requests that run when the server stops
    origins: Sequence[str] = ()  # other sites whose pages may call the API
    proxies: Sequence[str] = ()  # trusted to name the address of a client
    prefix: str = ""  # the path at which clients see this server, such as /queue
    patience: Patience = Patience()  # with slow clients
    beanstalkd: tuple[str, int] | None = None  # host and port for beanstalkd's protocol

    def run(self, listening: Callable[[Listening], None]) -> None:
        """Serve until SIGTERM or Ctrl-C; call `listening` once requests are accepted."""
        _allow_connections()
        gc.freeze()  # modules stay loaded, so no collection needs to visit them
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self.arun(listening))

    async def arun(self, listening: Callable[[Listening], None]) -> None:
        """Serve until SIGTERM or Ctrl-C; call `listening` once requests are accepted."""
        api = Api(self.app)
        api.shared.worker = self.worker
        api.shared.deliveries = self.deliveries
        api.shared.bodies.patience = self.patience.body
        api.shared.origins = frozenset(self.origins)
        http = _bind(self.host, self.port)
        server = HttpServer(self._config(api))
        server.live = api.shared.live
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(contextlib.closing(http))
            beanstalkd = _bind(*self.beanstalkd) if self.beanstalkd else None
            if beanstalkd:
                stack.enter_context(contextlib.closing(beanstalkd))
            stack.enter_context(self._stopping(server, api))
            stack.push_async_callback(self._close, server)
            preparing = asyncio.create_task(self._prepare(api, server, http, beanstalkd, stack))
            server.preparing = preparing
            await asyncio.wait({preparing})
            if preparing.cancelled():
                return  # a signal came before the database answered
            server.when_started = partial(listening, preparing.result())
            async with asyncio.TaskGroup() as group:
                if self.worker is not None:
                    group.create_task(self.worker.arun())
                if self.deliveries is not None:
                    group.create_task(self.deliveries.arun())
                group.create_task(self._serve(server, http))

    async def _prepare(
        self,
        api: Api,
        server: "HttpServer",
        http: socket.socket,
        beanstalkd: socket.socket | None,
        stack: contextlib.AsyncExitStack,
    ) -> Listening:
        """Do what needs the database before the first request is accepted."""
        await self.app.amigrate()
        port = http.getsockname()[1]
        link = await self._set_up_link(api, port)
        self.app.upkeep.start()
        if beanstalkd:
            await self._open_beanstalkd(beanstalkd, server, stack)
        address = _address(beanstalkd) if beanstalkd else None
        return Listening(self._url(self.host, port), link, address)

    async def _close(self, server: "HttpServer") -> None:
        """Close the app within the rest of the grace period."""
        await self.app.aclose(min(PATIENCE, server.time_left))

    async def _close_beanstalkd(self, beanstalkd: BeanstalkdServer, http: "HttpServer") -> None:
        """Close within the rest of the grace period; upkeep ends a session that stays open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(http.time_left):
                await beanstalkd.close()

    async def _open_beanstalkd(
        self, bound: socket.socket, http: "HttpServer", stack: contextlib.AsyncExitStack
    ) -> None:
        """Serve beanstalkd's protocol too; SIGUSR1 makes it refuse every further `put`."""
        beanstalkd = BeanstalkdServer(self.app)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, beanstalkd.drain)
        stack.callback(loop.remove_signal_handler, signal.SIGUSR1)
        await beanstalkd.start()
        stack.push_async_callback(self._close_beanstalkd, beanstalkd, http)
        await beanstalkd.listen(bound)

    async def _serve(self, server: "HttpServer", bound: socket.socket) -> None:
        try:
            await server.serve(sockets=[bound])
        finally:
            if self.worker is not None:
                self.worker.stop()
            if self.deliveries is not None:
                self.deliveries.stop()

    def _config(self, api: Api) -> uvicorn.Config:
        logging.getLogger("uvicorn.error").addFilter(_is_of_server)
        connection: Any = partial(HttpConnection, patience=self.patience)
        live: Any = partial(LiveConnection, patience=self.patience)
        served: Any = Prefixed(api, self.prefix) if self.prefix else api
        return uvicorn.Config(
            with_origins(served, self.origins) if self.origins else served,
            http=connection,
            ws=live,
            ws_ping_interval=self.patience.pong,
            ws_ping_timeout=self.patience.pong,
            ws_max_size=api.shared.most_body,
            ws_per_message_deflate=False,  # a window for each connection costs more than it saves
            lifespan="off",
            log_config=None,
            log_level="error",  # warnings are about clients that send invalid HTTP
            access_log=False,
            server_header=False,
            proxy_headers=bool(self.proxies),
            forwarded_allow_ips=list(self.proxies),
            backlog=BACKLOG,
            timeout_keep_alive=self.patience.idle,
            timeout_graceful_shutdown=max(1, round(self.grace)),
        )

    @contextlib.contextmanager
    def _stopping(self, server: "HttpServer", api: Api) -> Generator[None]:
        """Stop within the grace period at the first signal, at once at the second."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            again = server.force_exit = server.should_exit
            server.should_exit = True
            server.ends_at = time.monotonic() + (0 if again else self.grace)
            server.preparing.cancel()
            api.shared.closing.set()
            if self.worker is not None and again:
                self.worker.stop_now()
            elif self.worker is not None:
                self.worker.stop_gently()
            if self.deliveries is not None:
                (self.deliveries.stop_now if again else self.deliveries.stop)()

        signals = (signal.SIGTERM, signal.SIGINT)
        for each in signals:
            loop.add_signal_handler(each, stop)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)

    async def _set_up_link(self, api: Api, port: int) -> str | None:
        if await self.app.accounts.acount(Collection.SUPERUSERS):
            return None
        api.shared.set_up_token = secrets.token_urlsafe(32)
        host = self.host if is_loopback(self.host) else "127.0.0.1"
        return f"{self._url(host, port)}/setup?token={api.shared.set_up_token}"

    def _url(self, host: str, port: int) -> str:
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}{self.prefix}"


class HttpServer(uvicorn.Server):
    """uvicorn's server; `Serving` handles the signals."""

    when_started: Callable[[], None]
    preparing: asyncio.Task[Listening]
    live: set[object]  # sessions of WebSockets, which say goodbye by themselves
    ends_at = float("inf")  # the end of the grace period, once a signal has come

    @property
    def time_left(self) -> float:
        """Seconds left of the grace period; at least the time for an orderly close."""
        return max(CLOSING, self.ends_at - time.monotonic())

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do not handle signals here."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let WebSockets say goodbye before their connections are closed."""
        ends_at = time.monotonic() + 2 * CLOSING
        while self.live and not self.force_exit and time.monotonic() < ends_at:  # noqa: ASYNC110 - as uvicorn itself waits
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then call `when_started`."""
        await super().startup(sockets)
        self.when_started()


def _is_of_server(record: logging.LogRecord) -> bool:
    """Say whether a message is not about the bytes that a client has sent."""
    return "Invalid UTF-8" not in record.getMessage()


def _allow_connections() -> None:
    """Raise the limit of open files to the maximum: each connection takes one, 1,024 are few."""
    try:
        import resource  # noqa: PLC0415 - missing on Windows
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS reports no limit but enforces one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def with_origins(api: Any, origins: Sequence[str]) -> Any:
    """Let pages of other sites call the API: with a token, never with our cookie."""
    return CORSMiddleware(
        api,
        allow_origins=origins,
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type", "idempotency-key", *SENT],
        expose_headers=["retry-after", *TOLD],
        max_age=CORS_MAX_AGE,
    )


def _bind(host: str, port: int) -> socket.socket:
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What a client does not read waits in this process, which bounds and watches it.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT)
        bound.bind(address)
        bound.listen(BACKLOG)  # only now is the port refused to other processes
    except OSError as error:
        bound.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    bound.setblocking(False)
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
