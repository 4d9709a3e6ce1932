"""The gain of prefetching if each blob takes time to arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pyarrow as pa

from anabranch.blobs.local import LocalBlobs
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.model.policy import Fixed
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from bench.measure import in_turn, seconds
from bench.payloads import raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

FETCH_MS = 20
SEGMENTS = 4
BATCH_MIB = 1


class Slow(LocalBlobs):
    """A folder with slow reads, like those of an object store."""

    fetches = 0
    _counting = threading.Lock()

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See the port."""
        with self._counting:
            type(self).fetches += 1
        time.sleep(FETCH_MS / 1000)
        return super().get(key, offset, length)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Reads a whole stream with the plain iterator and with prefetching, alternating; each round begins with empty
    caches."""
    count = setting.scaled(128, 16)
    folder = setting.folder / "store"
    folder.mkdir()
    runtime = Runtime(settings=Settings(verify_ahead=False))  # as stores in a bucket are opened
    with Store(SqliteCatalog(folder, runtime), Slow(folder, runtime), runtime) as store:
        store.scopes.create("bench")
        store.streams.create("bench/events", scaling=Fixed(SEGMENTS))
        with store.writer("bench/events") as writer:
            for number in range(count):
                writer.write_batch(raw_table(rows_for(BATCH_MIB), number)).result()
        parts = store.history("bench/events").ranges(bytes_max=BATCH_MIB << 20)
        rows = sum(part.events for part in parts)

        def plain() -> float:
            with store.reader("bench/events") as reader:
                return rows / seconds(lambda: _count(reader.batches(), rows))

        def ahead() -> float:
            store.ranges.clear()
            with store.history("bench/events").read(parts) as reading:
                return rows / seconds(lambda: _count(reading, rows))

        rounds = in_turn(setting.scaled(5, 1), ahead, plain)
    return [
        Result(
            "readers_prefetch",
            f"reading ahead where each fetch takes {FETCH_MS} ms",
            "events/s",
            sorted(rounds.ours)[len(rounds.ours) // 2],
            sorted(rounds.other)[len(rounds.other) // 2],
            "the plain iterator",
            rounds.ratio,
            rounds.spread,
            Target(Bound.AT_LEAST, 2.0),
            (f"{count} MiB in {len(parts)} ranges of {SEGMENTS} segments; the default window and number of fetchers",),
        )
    ]


def _count(batches: object, rows: int) -> None:
    found = sum(batch.num_rows for batch in batches)  # type: ignore[attr-defined]
    assert found == rows


FIGURE = Benchmark("readers_prefetch", "reading history ahead", run)
