"""gRPC as one of a broker's front ends: grpc.aio on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import grpc
import uvloop

from anabranch.errors import InvalidArgument
from anabranch.security.tls import TlsFiles, TlsMaterial, TlsWatch
from anabranch.server.broker import Broker
from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.events.front import EventFront
from anabranch.server.grpc.service import store_service

_START_S: Final = 30.0
_FLUSH_S: Final = 0.25
_STREAMS_MAX: Final = 1_000  # calls of one connection at the same time
_PING_S: Final = 30  # how often a silent connection is asked whether it lives
_PING_APART_S: Final = 10  # callers who ask more often are disconnected


class GrpcFrontEnd:
    """A front end that serves the service `anabranch.v1.Store`."""

    name = "grpc"

    def __init__(
        self, broker: Broker, settings: ServerSettings, counters: Counters, access_log: AccessLog | None = None
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._counters = counters
        self._log = access_log
        self._address: Future[str] = Future()
        self._drain: Future[float] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)
        self._error: BaseException | None = None
        self._watch: TlsWatch | None = None

    def start(self) -> str:
        self._thread.start()
        return self._address.result(_START_S)

    def failed(self) -> str | None:
        if self._thread.is_alive() or self._drain.done():
            return None
        return str(self._error or "its event loop has ended")

    def drain(self, seconds: float) -> bool:
        if not self._drain.done():
            self._drain.set_result(seconds)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        if not self._drain.done():
            self._drain.set_result(0.0)
        self._thread.join(1.0)
        if self._watch is not None:
            self._watch.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as exc:
            self._error = exc
            if not self._address.done():
                self._address.set_exception(exc)

    async def _serve(self) -> None:
        settings = self._settings
        front = EventFront(self._broker)
        server = grpc.aio.server(
            handlers=(store_service(front, self._counters, self._log, send_timeout_s=settings.send_timeout_s),),
            options=_options(settings),
            maximum_concurrent_rpcs=settings.connections_max,
        )
        try:
            address = self._listen(server)
            await server.start()
            self._address.set_result(address)
            flushing = asyncio.create_task(self._flush())
            seconds = await asyncio.wrap_future(self._drain)
            await server.stop(max(0.0, seconds - 1.0))
            flushing.cancel()
        finally:
            await server.stop(0.0)
            await front.close()
            if self._log is not None:
                self._log.flush()

    def _listen(self, server: Any) -> str:
        settings = self._settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        place = f"{host}:{settings.grpc_port}"
        credentials = self._credentials()
        try:
            if credentials is None:
                port = server.add_insecure_port(place)
            else:
                port = server.add_secure_port(place, credentials)
        except RuntimeError as exc:  # gRPC's own reason is on stderr
            raise InvalidArgument(
                f"can't serve gRPC on {host}, port {settings.grpc_port}: the port is taken, or the host is not this machine"
            ) from exc
        return f"{host}:{port}"

    def _credentials(self) -> Any:
        """TLS by the settings' files, which are looked at again and again; None for a broker without TLS."""
        settings = self._settings
        if settings.tls_certificate is None or settings.tls_key is None:
            return None
        files = TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        changed: deque[TlsMaterial] = deque(maxlen=1)  # the newest, until it is used
        self._watch = TlsWatch(files, self._broker.store.runtime, changed.append)

        def fetch() -> Any:
            """Called by gRPC for each new connection; None: nothing has changed."""
            with suppress(IndexError):
                return _configuration(changed.pop())
            return None

        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._watch.material), fetch, require_client_authentication=files.client_ca is not None
        )

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._log is not None:
            await asyncio.sleep(_FLUSH_S)
            await loop.run_in_executor(None, self._log.flush)


def _configuration(material: TlsMaterial) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.client_ca
    )


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    """Limits against abuse, as gRPC calls them."""
    return [
        ("grpc.so_reuseport", 0),  # else a second broker on the port would get some of the calls
        ("grpc.max_receive_message_length", settings.request_bytes_max),
        ("grpc.max_send_message_length", -1),  # one event has to fit, however large
        ("grpc.max_concurrent_streams", _STREAMS_MAX),
        ("grpc.max_connection_idle_ms", int(settings.idle_timeout_s * 1000)),
        ("grpc.keepalive_time_ms", _PING_S * 1000),
        ("grpc.keepalive_timeout_ms", int(settings.send_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_APART_S * 1000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.server_handshake_timeout_ms", int(settings.header_timeout_s * 1000)),
    ]
