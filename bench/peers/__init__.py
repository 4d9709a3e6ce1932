"""Other systems as they are installed here, each started for a figure on loopback with an empty folder, and stopped
after it. None of them is needed: a figure says which were not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.peers.kafka import Kafka
from bench.peers.nats import Nats
from bench.peers.peer import NotInstalled, Peer
from bench.peers.redis import Redis
from bench.result import Setting

KINDS: tuple[type[Peer], ...] = (Redis, Nats, Kafka)


@contextmanager
def running(setting: Setting) -> Iterator[tuple[list[Peer], list[str]]]:
    """The peers that could be started, and why the others could not."""
    with ExitStack() as stack:
        peers, missing = [], []
        for kind in KINDS:
            try:
                peers.append(stack.enter_context(kind(setting.folder / kind.name)))
            except NotInstalled as exc:
                missing.append(f"{kind.name}: {exc}")
        yield peers, missing
