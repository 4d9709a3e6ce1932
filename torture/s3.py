"""An object store that for a while answers wrongly, late or never."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.s3_server import Exchange, Proxy, Spoil, fresh_url

_SPELL_S = (0.5, 3.0)  # how long a disturbance lasts
_SLOW_S = 0.5


class S3Server:
    """The tests' emulator behind a proxy that disturbs a part of the exchanges."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._proxy = Proxy()
        self.url = fresh_url(port=self._proxy.port)

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        """See `conductor.Server.faults`."""
        return {
            "S3 answers 500": lambda rng: self._disturb(rng, lambda _: Spoil(500)),
            "S3 answers 503": lambda rng: self._disturb(rng, lambda _: Spoil(503, code="SlowDown")),
            "S3 never answers": lambda rng: self._disturb(rng, lambda _: Spoil(mute=True)),
            "S3 is slow": lambda rng: self._disturb(rng, _slowly),
            "S3's answers are lost": lambda rng: self._disturb(rng, lambda _: Spoil(forward=True)),
            "S3's answers break off": lambda rng: self._disturb(rng, lambda _: Spoil(half=True)),
        }

    def _disturb(self, rng: random.Random, spoil: Callable[[Exchange], Spoil | None]) -> None:
        until, part = time.monotonic() + rng.uniform(*_SPELL_S), rng.choice((0.3, 1.0))
        self._proxy.requests.clear()

        def decide(exchange: Exchange) -> Spoil | None:
            return spoil(exchange) if time.monotonic() < until and rng.random() < part else None

        self._proxy.spoil = decide

    def recover(self) -> None:
        """See `conductor.Server.recover`."""
        self._proxy.spoil = lambda exchange: None

    def lose_power(self) -> None:
        """See `conductor.Server.lose_power`: it is on another machine."""

    def close(self) -> None:
        """Closes the proxy; the emulator ends with this process."""
        self._proxy.__exit__()


def _slowly(exchange: Exchange) -> None:
    time.sleep(_SLOW_S)
