"""The connection of a remote store to its brokers: one channel at a time, and the next broker when one is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from anabranch import limits
from anabranch.errors import Closed, StoreUnavailable
from anabranch.remote.address import BrokerAddress
from anabranch.remote.channel import Channel
from anabranch.runtime.log_events import BROKER_LOST
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import Retries, RetryPolicy

T = TypeVar("T")

AGAIN: Final = RetryPolicy(pause_s_min=0.02, pause_s_max=1.0)


def broker_retries(runtime: Runtime) -> Retries:
    """The attempts of a call while no broker answers: for at most `Settings.catalog_lock_s`."""
    return AGAIN.begin(runtime, until=runtime.clock.monotonic() + runtime.settings.catalog_lock_s)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who the client is, and whom it trusts: a bearer token; the CA's certificate, and the client's own with its key,
    as PEM. Without `ca` the machine's CAs are trusted."""

    token: str | None = field(default=None, repr=False)
    ca: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)


class Connection:
    """Calls to whichever of the brokers answers. Thread-safe."""

    def __init__(self, address: BrokerAddress, credentials: Credentials, runtime: Runtime) -> None:
        self._address = address
        self._credentials = credentials
        self._runtime = runtime
        self._lock = runtime.tasks.lock()
        self._current = 0
        self._channel: Channel | None = None
        self._retired: list[Channel] = []  # with calls under way
        self._closed = False
        self._generation = 0

    @property
    def place(self) -> str:
        """The `host:port` of the broker that is used at present."""
        return self._address.places[self._current]

    @property
    def channel(self) -> Channel:
        """The channel to the broker at `place`; call `lost` when one of its calls fails with StoreUnavailable. Raises
        Closed."""
        with self._lock:
            if self._closed:
                raise Closed("store")
            if self._channel is None:
                self._channel = self._connect()
            return self._channel

    def _connect(self) -> Channel:
        given = self._credentials
        secure: dict[str, Any] = {}
        if self._address.tls:
            pem = {"tls_root_certs": given.ca, "cert_chain": given.certificate, "private_key": given.private_key}
            secure = {name: value for name, value in pem.items() if value is not None}
        alone = len(self._address.places) == 1
        return Channel(
            self._address.locations[self._current],
            [(b"authorization", f"Bearer {given.token}".encode())] if given.token else [],
            self._runtime,
            silent_s=limits.BROKER_ALONE_SILENT_S if alone else limits.BROKER_SILENT_S,
            **secure,
        )

    @property
    def generation(self) -> int:
        """Counts the connections."""
        return self._generation

    def lost(self, error: Exception, generation: int | None = None) -> None:
        """Note that the broker did not answer: the next call goes to the next broker, over a new connection. With a
        `generation`, only if it is still the current one: if many calls fail together, only the first has an effect."""
        with self._lock:
            if self._closed or generation not in (None, self._generation):
                return
            self._generation += 1
            BROKER_LOST(place=self.place, error=error)
            self._current = (self._current + 1) % len(self._address.places)
            channel, self._channel = self._channel, None
            self._retired = [each for each in self._retired if not each.over]
            if channel is not None:
                channel.retire()
                self._retired.append(channel)

    def action(self, kind: str, body: bytes) -> Iterator[bytes]:
        """The results of one action, as they come. Raises what the broker raised; StoreUnavailable if it does not
        answer."""
        return self.channel.action(kind, body)

    def exchange(self, command: bytes) -> tuple[Any, Any]:
        """Open an exchange. Raises StoreUnavailable."""
        return self.channel.exchange(command)

    def retried(self, act: Callable[[], T]) -> T:
        """The result of `act`, called again while no broker answers, for at most `Settings.catalog_lock_s`."""
        retries = broker_retries(self._runtime)
        while True:
            generation = self._generation
            try:
                return act()
            except StoreUnavailable as exc:
                if type(exc) is not StoreUnavailable:  # an error of the store, which another broker would raise too
                    raise
                self.lost(exc, generation)
                if not retries.again(exc):
                    raise

    def close(self) -> None:
        """Close it. A second call does nothing."""
        with self._lock:
            self._closed = True
            channel, self._channel = self._channel, None
            retired, self._retired = self._retired, []
        for each in (*retired, channel):
            if each is not None:
                each.close()
