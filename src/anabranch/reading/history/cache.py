"""Caches fetched history ranges for all readers of a store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import pyarrow as pa

from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.runtime.tasks import Tasks

Batches = Sequence[pa.RecordBatch]
Key = tuple[SegmentPartRange, tuple[str, ...] | None, int]  # a range, the columns read, and their schema version


class RangeCache:
    """Keeps ranges up to `bytes_max` bytes of Arrow memory in total; evicts the least recently used first. Thread-safe.

    A reader that needs a range that another one is fetching waits for it, so many readers of a range fetch it once. If
    a fetch fails, each waiting reader tries again.
    """

    def __init__(self, tasks: Tasks, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = tasks.condition()
        self._kept: OrderedDict[Key, tuple[Batches, int]] = OrderedDict()
        self._under_way: set[Key] = set()
        self.bytes = 0
        self.fetches = 0

    def get(self, key: Key, fetch: Callable[[], Batches]) -> Batches:
        """The batches of a range: from the cache, or what `fetch` returns. Raises what `fetch` raises."""
        with self._changed:
            while key in self._under_way:
                self._changed.wait()
            if (known := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return known[0]
            self._under_way.add(key)
            self.fetches += 1
        found: Batches | None = None
        try:
            found = fetch()
            return found
        finally:
            with self._changed:
                self._under_way.remove(key)
                if found is not None:
                    self._keep(key, found)
                self._changed.notify_all()

    def clear(self) -> None:
        """Removes everything fetched so far."""
        with self._changed:
            self._kept.clear()
            self.bytes = 0

    def _keep(self, key: Key, batches: Batches) -> None:
        size = sum(batch.nbytes for batch in batches)
        self._kept[key] = batches, size
        self.bytes += size
        while self.bytes > self._bytes_max:
            _, (_, gone) = self._kept.popitem(last=False)
            self.bytes -= gone
