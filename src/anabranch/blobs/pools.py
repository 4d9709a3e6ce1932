"""What a process keeps of a remote store's bytes, in two pools that never push each other out.

Fresh commits, which this process has just put or a tailing reader has just fetched, are kept for those who tail. All else
is history: it has a pool of its own, fetches a few ranges at a time, and may be slowed down, so that a reader who catches
up with years costs neither writers nor those who tail. Who wants a range that is being fetched waits for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.blobs import keys
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.errors import CorruptBlob
from anabranch.runtime.ports import Runtime


class _Range(NamedTuple):
    """A range of a blob as it was asked for; `length` None reaches to its end."""

    key: str
    offset: int
    length: int | None


class PooledBlobs:
    """`blobs.port.Blobs` over a remote one. Its bytes are kept until `settings.tail_cache_bytes_max` and
    `history_cache_bytes_max` are reached, those that were used last the longest."""

    def __init__(self, inner: Blobs, runtime: Runtime) -> None:
        settings = runtime.settings
        self._inner = inner
        self._clock = runtime.clock
        self._tail = _Pool(runtime, settings.tail_cache_bytes_max, _Free())
        slow = _Slowed(runtime, settings.history_bytes_per_s_max)
        self._history = _Pool(runtime, settings.history_cache_bytes_max, slow)

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See the port. Kept, if it is a commit: whoever tails in this process asks for it next."""
        self._inner.put(key, chunks)
        if key.startswith(keys.COMMITS):
            self._tail.keep(_whole(key), _Chunks(chunks))

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See the port."""
        place = _Range(key, offset, length)
        known = self._tail.find(place)
        if known is not None:
            return known
        pool = self._tail if self._is_fresh(key) else self._history
        return pool.get(place, lambda: self._inner.get(key, offset, length))

    def _is_fresh(self, key: str) -> bool:
        begun_at = keys.begun_at(key)
        return (
            begun_at is not None
            and key.startswith(keys.COMMITS)
            and self._clock.now() - begun_at < limits.FRESH_COMMIT_US
        )

    def size(self, key: str) -> int | None:
        """See the port."""
        return self._inner.size(key)

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port."""
        return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        """See the port."""
        self._tail.forget(key)
        self._history.forget(key)
        self._inner.delete(key)

    def path(self, key: str) -> str:
        """See the port."""
        return self._inner.path(key)

    def close(self) -> None:
        """See the port."""
        self._tail.clear()
        self._history.clear()
        self._inner.close()


class _Chunks:
    """A whole blob as it was put: a range that lies in one chunk, as every message does, is given out without a copy."""

    def __init__(self, chunks: Sequence[pa.Buffer | bytes]) -> None:
        self._chunks = [chunk if isinstance(chunk, pa.Buffer) else pa.py_buffer(chunk) for chunk in chunks]
        self._ends = list(accumulate(chunk.size for chunk in self._chunks))
        self.size = self._ends[-1] if self._ends else 0

    def get(self, place: _Range) -> pa.Buffer:
        stop = self.size if place.length is None else place.offset + place.length
        if max(stop, place.offset) > self.size:
            raise CorruptBlob(place.key, f"it holds {self.size} bytes, {max(stop, place.offset)} were expected")
        pieces, at = [], place.offset
        while at < stop:
            number = bisect_right(self._ends, at)
            chunk, end = self._chunks[number], self._ends[number]
            pieces.append(chunk.slice(at - (end - chunk.size), min(stop, end) - at))
            at = min(stop, end)
        return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


class _Gate(Protocol):
    """Admits fetches."""

    def enter(self) -> None: ...

    def leave(self, size: int) -> None: ...


class _Free:
    """Admits all."""

    def enter(self) -> None:
        """At once."""

    def leave(self, size: int) -> None:
        """Without a trace."""


class _Slowed:
    """Admits `limits.HISTORY_FETCHES_MAX` fetches at a time and, with a rate, none until those before it are paid for:
    over a while no more than `bytes_per_s` are fetched."""

    def __init__(self, runtime: Runtime, bytes_per_s: int | None) -> None:
        self._runtime = runtime
        self._rate = bytes_per_s
        self._changed = runtime.tasks.condition()
        self._inside = 0
        self._paid_at = 0.0

    def enter(self) -> None:
        """Waits for its turn."""
        inside = False
        try:
            with self._changed:
                while self._inside >= limits.HISTORY_FETCHES_MAX:
                    self._changed.wait()
                self._inside, inside = self._inside + 1, True
                debt_s = self._paid_at - self._runtime.clock.monotonic()
            if debt_s > 0:
                self._runtime.tasks.sleep(debt_s)
        except BaseException:  # Ctrl-C, which may strike between any two lines
            if inside:
                self.leave(0)
            raise

    def leave(self, size: int) -> None:
        """`size` bytes were fetched."""
        with self._changed:
            self._inside -= 1
            if self._rate is not None:
                self._paid_at = max(self._paid_at, self._runtime.clock.monotonic()) + size / self._rate
            self._changed.notify_all()


class _Flight:
    """A fetch under way, and what came of it: neither, where who fetched was interrupted."""

    def __init__(self) -> None:
        self.over = False
        self.data: pa.Buffer | None = None
        self.error: Exception | None = None


class _Pool:
    """Ranges and whole blobs of at most `bytes_max` bytes in all, none of more than half of that; what was used last stays
    longest. Thread-safe."""

    def __init__(self, runtime: Runtime, bytes_max: int, gate: _Gate) -> None:
        self._bytes_max = bytes_max
        self._gate = gate
        self._changed = runtime.tasks.condition()
        self._held: OrderedDict[_Range, _Chunks] = OrderedDict()
        self._flights: dict[_Range, _Flight] = {}
        self._bytes = 0

    def keep(self, place: _Range, chunks: _Chunks) -> None:
        """Take in bytes."""
        with self._changed:
            self._keep(place, chunks)

    def find(self, place: _Range) -> pa.Buffer | None:
        """The bytes, if they are here."""
        with self._changed:
            return self._find(place)

    def get(self, place: _Range, fetch: Callable[[], pa.Buffer]) -> pa.Buffer:
        """The bytes, fetched unless they are here or on their way. Raises what `fetch` raises."""
        mine: _Flight | None = None
        try:
            with self._changed:
                while True:
                    known = self._find(place)
                    if known is not None:
                        return known
                    flight = self._flights.get(place)
                    if flight is None:
                        # Ours before it is known: if Ctrl-C strikes before the next line, nobody waits for it for ever.
                        mine = self._flights[place] = _Flight()
                        break
                    while not flight.over:
                        self._changed.wait()
                    if flight.error is not None:
                        raise flight.error
                    if flight.data is not None:
                        return flight.data
            return self._fetch(mine, fetch)
        finally:
            if mine is not None:
                self._land(place, mine)

    def _fetch(self, flight: _Flight, fetch: Callable[[], pa.Buffer]) -> pa.Buffer:
        try:
            self._gate.enter()
            try:
                flight.data = fetch()
            finally:
                self._gate.leave(0 if flight.data is None else flight.data.size)
            return flight.data
        except Exception as exc:
            flight.error = exc
            raise

    def _land(self, place: _Range, flight: _Flight) -> None:
        with self._changed:
            del self._flights[place]
            flight.over = True
            if flight.data is not None:
                self._keep(place, _Chunks([flight.data]))
            self._changed.notify_all()

    def _find(self, place: _Range) -> pa.Buffer | None:
        whole = _whole(place.key)
        for there, wanted in ((whole, place), (place, whole)):
            chunks = self._held.get(there)
            if chunks is not None:
                self._held.move_to_end(there)
                return chunks.get(wanted)
        return None

    def _keep(self, place: _Range, chunks: _Chunks) -> None:
        self._drop(place)
        if chunks.size > self._bytes_max // 2:
            return  # one large event, say, must not push out all that others are reading
        self._held[place] = chunks
        self._bytes += chunks.size
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._held)))

    def _drop(self, place: _Range) -> None:
        gone = self._held.pop(place, None)
        self._bytes -= 0 if gone is None else gone.size

    def forget(self, key: str) -> None:
        """Let go of a blob."""
        with self._changed:
            for place in [place for place in self._held if place.key == key]:
                self._drop(place)

    def clear(self) -> None:
        """Let go of all."""
        with self._changed:
            self._held.clear()
            self._bytes = 0


def _whole(key: str) -> _Range:
    return _Range(key, 0, None)
