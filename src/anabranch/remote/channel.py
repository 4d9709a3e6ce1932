"""One connection to one broker: its calls, and the detection of a broker that no longer answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from weakref import WeakSet

import pyarrow as pa
from google.protobuf.message import Message
from pyarrow import flight

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.wire.commands import PING, pack
from anabranch.wire.flight_errors import from_flight

_UNENDING: Final = 0  # pings as long as a call is under way


class Channel:
    """Calls to one broker. Thread-safe. Every call raises what the broker raises, and StoreUnavailable if the broker
    does not answer. If the broker's process is stopped or its machine is gone, detecting it takes about two times
    `silent_s`.

    To detect it, gRPC pings the broker's machine every `silent_s` while a call is under way. A server closes
    connections that only send pings, so a heartbeat also makes calls."""

    def __init__(
        self, location: str, headers: list[tuple[bytes, bytes]], runtime: Runtime, *, silent_s: float, **secure: Any
    ) -> None:
        """`headers` go with each call. `secure` are the arguments of a FlightClient with TLS."""
        self._headers = headers
        self._client = flight.FlightClient(location, generic_options=_options(silent_s), **secure)
        self._open: WeakSet[Any] = WeakSet()  # Flight's readers and writers of streaming calls
        self._calls = 0  # under way, without streaming calls
        self._lock = runtime.tasks.lock()
        self._retired = False
        self._heartbeat = Periodic(runtime, "heartbeat", silent_s * 0.7, self._beat)

    def read(self, command: Message, headers: Sequence[tuple[bytes, bytes]] = ()) -> Any:
        """Begin a call that reads; returns Flight's reader. `headers` are sent in addition to those of each call."""
        with self._call():
            chunks = self._client.do_get(flight.Ticket(pack(command)), self._flight_options(headers=headers))
        return self._opened(chunks)

    def put(self, command: Message, columns: pa.Schema) -> tuple[Any, Any]:
        """Begin a call that appends; returns Flight's writer, and its reader of answers."""
        descriptor = flight.FlightDescriptor.for_command(pack(command))
        with self._call():
            writer, reader = self._client.do_put(descriptor, columns, self._flight_options())
        return self._opened(writer), reader

    def exchange(self, command: bytes) -> tuple[Any, Any]:
        """Begin an exchange; returns Flight's writer and reader."""
        descriptor = flight.FlightDescriptor.for_command(command)
        with self._call():
            writer, reader = self._client.do_exchange(descriptor, self._flight_options())
        return self._opened(writer), reader

    def info(self, command: Message) -> Any:
        """Flight's description of the data that the command names."""
        descriptor = flight.FlightDescriptor.for_command(pack(command))
        with self._call():
            return self._client.get_flight_info(descriptor, self._flight_options())

    def action(self, kind: str, body: bytes) -> Iterator[bytes]:
        """The results of one action, as they come."""
        with self._call():
            for result in self._client.do_action(flight.Action(kind, body), self._flight_options()):
                yield result.body.to_pybytes()

    def retire(self) -> None:
        """Note that no further calls will be made. Calls under way continue, and the heartbeat ends after them."""
        self._retired = True

    @property
    def over(self) -> bool:
        """Whether it is retired, and no call is under way any more."""
        return self._retired and not self._busy

    def close(self) -> None:
        """Close it. A second call does nothing."""
        self._heartbeat.close()
        self._client.close()

    # the work

    def _flight_options(
        self, timeout_s: float | None = None, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> flight.FlightCallOptions:
        """The options of a call. They are not stored: their `repr` shows the token."""
        return flight.FlightCallOptions(timeout=timeout_s, headers=[*self._headers, *headers])

    @contextmanager
    def _call(self) -> Iterator[None]:
        self._heartbeat.start()
        with self._lock:
            self._calls += 1
        try:
            yield
        except Exception as exc:
            raise from_flight(exc) from None
        finally:
            with self._lock:
                self._calls -= 1

    def _opened(self, stream: Any) -> Any:
        with self._lock:
            self._open.add(stream)
        return stream

    @property
    def _busy(self) -> bool:
        with self._lock:
            return bool(self._calls or len(self._open))

    def _beat(self) -> None:
        if self._busy:
            with suppress(AnabranchError, pa.ArrowException, OSError):  # calls notice it themselves
                list(self._client.do_action(flight.Action(PING, b""), self._flight_options(limits.HEARTBEAT_S)))
        elif self._retired:
            self._heartbeat.stop()


def _options(silent_s: float) -> list[tuple[str, int]]:
    silent_ms = round(silent_s * 1000)
    return [
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", silent_ms * 2),  # how long one attempt to connect may take
        ("grpc.keepalive_time_ms", silent_ms),
        ("grpc.keepalive_timeout_ms", silent_ms),
        ("grpc.http2.ping_timeout_ms", silent_ms),
        ("grpc.http2.max_pings_without_data", _UNENDING),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel does not take over the old one's dead connection
    ]
