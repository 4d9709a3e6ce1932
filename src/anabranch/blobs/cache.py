"""A process's cache of a remote store's bytes, in two pools that never evict each other's entries.

Fresh commits, which this process has just put or a tailing reader has just fetched, are kept for tailing readers. All
other bytes are history. History has a pool of its own, whose fetches are few at a time and may be rate-limited, so that
a reader that catches up on years of events slows down neither writers nor tailing readers. A range that is being
fetched already is not fetched again: the second caller waits for the first fetch."""

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
    """A requested range of a blob; with `length` None it reaches to the blob's end."""

    key: str
    offset: int
    length: int | None


class PooledBlobs:
    """`blobs.port.Blobs` with a cache over a remote one. The pools hold up to `settings.tail_cache_bytes_max` and
    `history_cache_bytes_max`, and evict the least recently used entries."""

    def __init__(self, inner: Blobs, runtime: Runtime) -> None:
        settings = runtime.settings
        self._inner = inner
        self._clock = runtime.clock
        self._tail = _Pool(runtime, settings.tail_cache_bytes_max, _Unlimited())
        slow = _RateLimited(runtime, settings.history_bytes_per_s_max)
        self._history = _Pool(runtime, settings.history_cache_bytes_max, slow)

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See the port. A commit is cached: tailing readers in this process read it next."""
        self._inner.put(key, chunks)
        if key.startswith(keys.COMMITS):
            self._tail.keep(_whole(key), _Chunks(chunks))

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        wanted = _Range(key, offset, length)
        cached = self._tail.find(wanted)
        if cached is not None:
            return cached
        pool = self._tail if self._is_fresh(key) else self._history
        return pool.get(wanted, lambda: self._inner.get(key, offset, length))

    def _is_fresh(self, key: str) -> bool:
        begun_at = keys.begun_at(key)
        return (
            begun_at is not None
            and key.startswith(keys.COMMITS)
            and self._clock.now() - begun_at < limits.FRESH_COMMIT_US
        )

    def size(self, key: str) -> int | None:
        return self._inner.size(key)

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        self._tail.forget(key)
        self._history.forget(key)
        self._inner.delete(key)

    def path(self, key: str) -> str:
        return self._inner.path(key)

    def close(self) -> None:
        self._tail.clear()
        self._history.clear()
        self._inner.close()


class _Chunks:
    """A whole blob as chunks. A range within one chunk, as every message is, is returned without a copy."""

    def __init__(self, chunks: Sequence[pa.Buffer | bytes]) -> None:
        self._chunks = [chunk if isinstance(chunk, pa.Buffer) else pa.py_buffer(chunk) for chunk in chunks]
        self._ends = list(accumulate(chunk.size for chunk in self._chunks))
        self.size = self._ends[-1] if self._ends else 0

    def get(self, wanted: _Range) -> pa.Buffer:
        stop = self.size if wanted.length is None else wanted.offset + wanted.length
        if max(stop, wanted.offset) > self.size:
            raise CorruptBlob(wanted.key, f"expected {max(stop, wanted.offset)} bytes, found {self.size}")
        pieces, at = [], wanted.offset
        while at < stop:
            number = bisect_right(self._ends, at)
            chunk, end = self._chunks[number], self._ends[number]
            pieces.append(chunk.slice(at - (end - chunk.size), min(stop, end) - at))
            at = min(stop, end)
        return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


class _FetchLimiter(Protocol):
    """Limits fetches: `enter` is called before each, `leave` after it with the number of bytes fetched."""

    def enter(self) -> None: ...

    def leave(self, size: int) -> None: ...


class _Unlimited:
    """Does not limit fetches."""

    def enter(self) -> None:
        """Return at once."""

    def leave(self, size: int) -> None:
        """Do nothing."""


class _RateLimited:
    """Admits `limits.HISTORY_FETCHES_MAX` fetches at a time. With a rate, a fetch also waits for the time that the
    bytes of earlier fetches take at this rate, so that the average does not exceed `bytes_per_s`."""

    def __init__(self, runtime: Runtime, bytes_per_s: int | None) -> None:
        self._runtime = runtime
        self._rate = bytes_per_s
        self._changed = runtime.tasks.condition()
        self._inside = 0
        self._paid_at = 0.0

    def enter(self) -> None:
        """Wait until a fetch may begin."""
        inside = False
        try:
            with self._changed:
                while self._inside >= limits.HISTORY_FETCHES_MAX:
                    self._changed.wait()
                self._inside, inside = self._inside + 1, True
                debt_s = self._paid_at - self._runtime.clock.monotonic()
            if debt_s > 0:
                self._runtime.tasks.sleep(debt_s)
        except BaseException:  # Ctrl-C, which may come between any two lines
            if inside:
                self.leave(0)
            raise

    def leave(self, size: int) -> None:
        """End a fetch of `size` bytes."""
        with self._changed:
            self._inside -= 1
            if self._rate is not None:
                self._paid_at = max(self._paid_at, self._runtime.clock.monotonic()) + size / self._rate
            self._changed.notify_all()


class _Fetch:
    """A fetch in progress, and its result: `data`, `error`, or neither if the fetching thread was interrupted."""

    def __init__(self) -> None:
        self.done = False
        self.data: pa.Buffer | None = None
        self.error: Exception | None = None


class _Pool:
    """An LRU cache of ranges and whole blobs: at most `bytes_max` bytes in all, none larger than half of that.
    Thread-safe."""

    def __init__(self, runtime: Runtime, bytes_max: int, limiter: _FetchLimiter) -> None:
        self._bytes_max = bytes_max
        self._limiter = limiter
        self._changed = runtime.tasks.condition()
        self._entries: OrderedDict[_Range, _Chunks] = OrderedDict()
        self._fetches: dict[_Range, _Fetch] = {}
        self._bytes = 0

    def keep(self, wanted: _Range, chunks: _Chunks) -> None:
        """Add the bytes of a range or of a whole blob."""
        with self._changed:
            self._keep(wanted, chunks)

    def find(self, wanted: _Range) -> pa.Buffer | None:
        """The bytes, if they are cached."""
        with self._changed:
            return self._find(wanted)

    def get(self, wanted: _Range, fetch: Callable[[], pa.Buffer]) -> pa.Buffer:
        """The bytes, fetched unless they are cached or being fetched. Raises what `fetch` raises."""
        own: _Fetch | None = None
        try:
            with self._changed:
                while True:
                    cached = self._find(wanted)
                    if cached is not None:
                        return cached
                    pending = self._fetches.get(wanted)
                    if pending is None:
                        # Assigned to `own` first: if Ctrl-C comes before the next line, `finally` ends the fetch.
                        own = self._fetches[wanted] = _Fetch()
                        break
                    while not pending.done:
                        self._changed.wait()
                    if pending.error is not None:
                        raise pending.error
                    if pending.data is not None:
                        return pending.data
            return self._fetch(own, fetch)
        finally:
            if own is not None:
                self._finish(wanted, own)

    def _fetch(self, pending: _Fetch, fetch: Callable[[], pa.Buffer]) -> pa.Buffer:
        try:
            self._limiter.enter()
            try:
                pending.data = fetch()
            finally:
                self._limiter.leave(0 if pending.data is None else pending.data.size)
            return pending.data
        except Exception as exc:
            pending.error = exc
            raise

    def _finish(self, wanted: _Range, pending: _Fetch) -> None:
        with self._changed:
            del self._fetches[wanted]
            pending.done = True
            if pending.data is not None:
                self._keep(wanted, _Chunks([pending.data]))
            self._changed.notify_all()

    def _find(self, wanted: _Range) -> pa.Buffer | None:
        whole = _whole(wanted.key)
        for stored, part in ((whole, wanted), (wanted, whole)):
            chunks = self._entries.get(stored)
            if chunks is not None:
                self._entries.move_to_end(stored)
                return chunks.get(part)
        return None

    def _keep(self, wanted: _Range, chunks: _Chunks) -> None:
        self._drop(wanted)
        if chunks.size > self._bytes_max // 2:
            return  # one large event, for example, must not evict everything that others are reading
        self._entries[wanted] = chunks
        self._bytes += chunks.size
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))

    def _drop(self, wanted: _Range) -> None:
        dropped = self._entries.pop(wanted, None)
        self._bytes -= 0 if dropped is None else dropped.size

    def forget(self, key: str) -> None:
        """Remove a blob and its ranges."""
        with self._changed:
            for wanted in [wanted for wanted in self._entries if wanted.key == key]:
                self._drop(wanted)

    def clear(self) -> None:
        """Remove everything."""
        with self._changed:
            self._entries.clear()
            self._bytes = 0


def _whole(key: str) -> _Range:
    return _Range(key, 0, None)
