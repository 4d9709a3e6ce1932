"""A TCP proxy that cuts, delays, half-closes and stalls connections, and replays the first bytes of some to another
server, as a network might that delivers a request twice."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

_REPLAYED_MAX: Final = 256 * 1024  # bytes from the start of a connection
_CHUNK: Final = 64 * 1024
_FAULTS: Final = ("cut", "half-closed", "stalled", "delayed", "replayed elsewhere")
_STALL_S: Final = 1.0
_DELAY_S: Final = 0.05
_START_S: Final = 10.0


class Proxy:
    """Listens on a free port of 127.0.0.1 for each of several servers, whose ports may change. `faults` counts what
    it did to connections; `rate` is the chance of a fault for each chunk of bytes, and 0 ends them."""

    def __init__(self, targets: Sequence[int], seed: int, rate: float) -> None:
        """`targets`: the ports of interchangeable servers of one protocol."""
        self.targets = list(targets)
        self.rate = rate
        self.faults = Counter[str]()
        self.ports: list[int] = []
        self._rng = random.Random(seed)
        self._replays = set[asyncio.Task[None]]()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(_START_S), "the proxy does not start"

    def close(self) -> None:
        """Ends all connections."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_START_S)

    async def _serve(self) -> None:
        for place in range(len(self.targets)):
            server = await asyncio.start_server(partial(self._connected, place), "127.0.0.1", 0)
            self.ports.append(server.sockets[0].getsockname()[1])
        self._ready.set()
        await self._ending.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, place: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = bytearray()
        try:
            there, to_there = await asyncio.open_connection("127.0.0.1", self.targets[place])
        except OSError:
            writer.transport.abort()
            return
        both = (writer, to_there)
        try:
            await asyncio.gather(
                self._pump(reader, to_there, both, sent, place), self._pump(there, writer, both, None, place)
            )
        except OSError:
            pass
        finally:
            for each in both:
                each.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, ...],
        sent: bytearray | None,
        place: int,
    ) -> None:
        while chunk := await source.read(_CHUNK):
            if sent is not None and len(sent) < _REPLAYED_MAX:
                sent += chunk
            if self._rng.random() < self.rate:
                fault = self._rng.choice(_FAULTS)
                self.faults[f"connection {fault}"] += 1
                if fault == "cut":
                    sink.write(chunk[: self._rng.randrange(len(chunk) + 1)])
                    for each in both:
                        each.transport.abort()
                    return
                if fault == "half-closed":
                    break
                if fault == "replayed elsewhere":
                    if sent is not None:
                        self._replay(bytes(sent), place)
                else:
                    await asyncio.sleep(self._rng.random() * (_STALL_S if fault == "stalled" else _DELAY_S))
            sink.write(chunk)
            await sink.drain()
        with suppress(OSError):
            sink.write_eof()

    def _replay(self, sent: bytes, place: int) -> None:
        other = self.targets[(place + 1) % len(self.targets)]
        task = self._loop.create_task(_send(other, sent))
        self._replays.add(task)
        task.add_done_callback(self._replays.discard)


async def _send(port: int, sent: bytes) -> None:
    """Sends bytes, ignores the answer for a while, and leaves."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(sent)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STALL_S):
                    while await reader.read(_CHUNK):
                        pass
        finally:
            writer.transport.abort()
