"""Other systems as they are installed here, each started for a figure on loopback with an empty folder, and stopped
after it. None of them is needed: a figure says which were not installed."""

from __future__ import annotations

from collections.abc import Generator

from bench.peers.kafka import Kafka
from bench.peers.nats import Nats
from bench.peers.peer import NotInstalled, Peer
from bench.peers.redis import Redis
from bench.result import Setting

KINDS: tuple[type[Peer], ...] = (Redis, Nats, Kafka)


def each(setting: Setting, missing: list[str]) -> Generator[Peer]:
    """One peer after the other, running while it is the caller's turn; `missing` is told why the others are not.

    To be closed if it is not used up: that stops the peer.
    """
    for kind in KINDS:
        try:
            with kind(setting.folder / kind.name) as peer:
                yield peer
        except NotInstalled as exc:
            missing.append(f"{kind.name}: {exc}")
