"""Other systems as they are installed here. Each is started for a figure on loopback with an empty folder, and
stopped after it. None of them is required: a figure reports which were not installed."""

from __future__ import annotations

from collections.abc import Generator

from bench.peers.kafka import Kafka
from bench.peers.nats import Nats
from bench.peers.peer import NotInstalled, Peer
from bench.peers.redis import Redis
from bench.result import BenchmarkSetting

KINDS: tuple[type[Peer], ...] = (Redis, Nats, Kafka)


def each(setting: BenchmarkSetting, missing: list[str]) -> Generator[Peer]:
    """Yields one peer after the other, running until the next one is requested; `missing` gets why the others are not.

    Close it if it is not exhausted: that stops the peer.
    """
    for kind in KINDS:
        try:
            with kind(setting.folder / kind.name) as peer:
                yield peer
        except NotInstalled as exc:
            missing.append(f"{kind.name}: {exc}")
