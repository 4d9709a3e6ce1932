"""NATS JetStream through nats-py: pipelined publishing with acknowledgements, and a pull consumer."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from bench.peers.peer import NotInstalled, Peer, free_port

_PENDING = 2_000  # published and not acknowledged
_PAGE = 1_000


class Nats(Peer):
    """One stream on disk; the key is the last token of the subject."""

    name = "nats"
    durability = "file storage, fsync every 2 minutes (its default): an acknowledged event may be lost until then"
    write_style = f"nats-py, publish_async with {_PENDING:,} pending"
    read_style = f"nats-py, pull consumer, pages of {_PAGE:,}"

    def start(self) -> None:
        """See `Peer`."""
        command = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
        if command is None:
            raise NotInstalled("no nats-server on the PATH")
        try:
            import nats
        except ImportError as exc:
            raise NotInstalled("no nats client: pip install nats-py") from exc
        self._command = command
        port = free_port()
        self._launch(
            [command, "--jetstream", "--addr", "127.0.0.1", "--port", str(port), "--store_dir", str(self._folder)]
        )
        self._loop = asyncio.new_event_loop()

        async def connect() -> None:
            self._client: Any = await nats.connect(
                f"nats://127.0.0.1:{port}", connect_timeout=1, allow_reconnect=False, error_cb=_ignore
            )
            self._stream: Any = self._client.jetstream(publish_async_max_pending=_PENDING)
            await self._stream.add_stream(name="events", subjects=["events.*"])

        self._until(lambda: self._loop.run_until_complete(connect()))

    def stop(self) -> None:
        """See `Peer`."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def version(self) -> str:
        """See `Peer`."""
        version_text = subprocess.run(
            [self._command, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
        return f"NATS {version_text.stdout.split()[-1].removeprefix('v')}"

    def write(self, bodies: Sequence[bytes], keys: Sequence[str]) -> float:
        """See `Peer`."""
        return self._loop.run_until_complete(self._write(bodies, keys))

    async def _write(self, bodies: Sequence[bytes], keys: Sequence[str]) -> float:
        await self._stream.purge_stream("events")
        begun = time.perf_counter()
        for body, key in zip(bodies, keys, strict=True):
            await self._stream.publish_async(f"events.{key}", body, wait_stall=30)
        await self._stream.publish_async_completed()
        return time.perf_counter() - begun

    def read(self) -> tuple[int, float]:
        """See `Peer`."""
        return self._loop.run_until_complete(self._read())

    async def _read(self) -> tuple[int, float]:
        from nats.js.api import AckPolicy, ConsumerConfig

        total = (await self._stream.stream_info("events")).state.messages
        count = 0
        begun = time.perf_counter()
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        subscription = await self._stream.pull_subscribe("events.*", config=config)
        while count < total:
            for message in await subscription.fetch(min(_PAGE, total - count), timeout=30):
                if message.subject and message.data:
                    count += 1
        took = time.perf_counter() - begun
        await subscription.unsubscribe()
        return count, took


async def _ignore(error: Exception) -> None:
    """Ignores the error, which is raised as well; by default nats-py logs every attempt to connect."""
