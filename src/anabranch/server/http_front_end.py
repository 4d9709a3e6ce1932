"""HTTP in this process: uvicorn on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import uvicorn

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.server.broker import Broker
from anabranch.server.certificates import ServerCertificate
from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.edge.app import HttpEdge
from anabranch.server.edge.protocol import SocketProtocol, timed_protocol
from anabranch.server.http.app import HttpApp
from anabranch.server.http.bytes.endpoints import is_upload
from anabranch.server.http.direct_append import DirectAppends

_START_S = 30.0


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InvalidArgument if the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise InvalidArgument(f"can't listen on {host}, port {port}: {reason}") from exc


def shown_url(listener: socket.socket, *, tls: bool) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class _AnnouncedServer(uvicorn.Server):
    """Calls `announce` once connections are accepted."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


class HttpFrontEnd:
    """A front end that serves on a listening socket, which it closes. Other processes may serve on the same one."""

    name = "http"

    def __init__(
        self,
        broker: Broker,
        settings: ServerSettings,
        counters: Counters,
        access_log: AccessLog | None = None,
        *,
        listener: socket.socket | None = None,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._certificate = ServerCertificate.of(settings, broker.store.runtime)
        hosts = ("*",) if settings.authenticates else settings.allowed_hosts
        app = HttpApp(broker, origins=settings.cors_origins, hosts=hosts)
        self._edge = HttpEdge(app, broker, settings, counters, access_log, is_upload=is_upload)
        self._direct = DirectAppends(lambda: app.front, self._edge, connections_max=settings.connections_max)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._serving = threading.Event()
        self._draining = False

    def start(self) -> str:
        settings, certificate = self._settings, self._certificate
        listener = self._listener or listen(settings.host, settings.http_port)
        config = uvicorn.Config(
            self._edge,
            http=timed_protocol(settings.header_timeout_s, self._direct.take),
            ws=SocketProtocol,
            ws_max_size=limits.SOCKET_MESSAGE_BYTES_MAX,
            ws_per_message_deflate=False,
            loop="uvloop",
            lifespan="auto",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.connections_max,
            timeout_keep_alive=max(1, int(settings.idle_timeout_s)),
            ssl_context_factory=None if certificate is None else (lambda _config, _default: certificate.context),
        )
        self._server = _AnnouncedServer(config, self._serving.set)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="http", daemon=True)
        self._thread.start()
        address = shown_url(listener, tls=settings.tls)
        if not self._serving.wait(_START_S) or self._error is not None:
            raise InvalidArgument(f"HTTP did not start: {self._error or 'no answer'}")
        return address

    def failed(self) -> str | None:
        if self._thread is None or self._thread.is_alive() or self._draining:
            return None
        return str(self._error or "its event loop has ended")

    def drain(self, seconds: float) -> bool:
        self._draining = True
        if self._server is None or self._thread is None:
            return True
        self._server.should_exit = True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._draining = True
        if self._certificate is not None:
            self._certificate.close()
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(1.0)

    def _run(self, listener: socket.socket) -> None:
        assert self._server is not None
        try:
            with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
                runner.run(self._serve(self._server, listener))
        except BaseException as exc:  # SystemExit too, which uvicorn raises for a failed start
            self._error = exc
        finally:
            self._serving.set()

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        sweep = asyncio.create_task(self._edge.sweep())
        try:
            await server.serve(sockets=[listener])
        finally:
            sweep.cancel()
            await asyncio.gather(sweep, return_exceptions=True)
