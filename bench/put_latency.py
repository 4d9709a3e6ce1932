"""Whether a slow object store costs throughput. Commits are uploaded concurrently, so it should not."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import BlobInfo
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import BlobMissing
from anabranch.model.policy import Fixed
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from bench.measure import in_turn, seconds
from bench.payloads import raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

SEGMENTS = 8
SLOW_MS, FAST_MS = 100, 5
BATCHES_MIB = (1, 4, 16)


class Waiting:
    """Blobs (`blobs.port.Blobs`) that acknowledge a put after a delay, and discard it: what remains is our own work,
    and the hash over its bytes with which a client signs a PUT. No storage could be cheaper, so none shows the
    effect of the delay more."""

    def __init__(self, put_ms: int) -> None:
        self._put_s = put_ms / 1000
        self._lock = threading.Lock()
        self.puts = 0
        self.bytes = 0

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See the port."""
        with self._lock:
            self.puts += 1
            self.bytes += sum(len(memoryview(chunk)) for chunk in chunks)
        signed = hashlib.sha256()
        for chunk in chunks:
            signed.update(chunk)
        time.sleep(self._put_s)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See the port."""
        raise BlobMissing(key)

    def size(self, key: str) -> int | None:
        """See the port."""
        return None

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port."""
        return iter(())

    def delete(self, key: str) -> None:
        """See the port."""

    def path(self, key: str) -> str:
        """See the port."""
        return key

    def close(self) -> None:
        """See the port."""


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """One writer appends batches of equal size as fast as they are taken, to both stores alternately, then flushes."""
    return [_measured(setting, mib) for mib in BATCHES_MIB]


def _measured(setting: BenchmarkSetting, batch_mib: int) -> Result:
    tables = [raw_table(rows_for(batch_mib), seed) for seed in range(4)]
    count = setting.scaled(2048, 64) // batch_mib
    size = sum(tables[number % 4].nbytes for number in range(count))
    stores = {put_ms: _Side(setting, put_ms, batch_mib) for put_ms in (SLOW_MS, FAST_MS)}
    try:

        def rate(put_ms: int) -> float:
            return size / 1e6 / seconds(lambda: stores[put_ms].append(tables, count))

        rate(SLOW_MS)
        rate(FAST_MS)
        rounds = in_turn(setting.scaled(5, 1), lambda: rate(SLOW_MS), lambda: rate(FAST_MS))
    finally:
        for side in stores.values():
            side.store.close()
    slow, fast = stores[SLOW_MS].blobs, stores[FAST_MS].blobs
    return Result(
        "put_latency",
        f"append through PUTs of {SLOW_MS} ms, batches of {batch_mib} MiB",
        "MB/s",
        sorted(rounds.ours)[len(rounds.ours) // 2],
        sorted(rounds.other)[len(rounds.other) // 2],
        f"the same through PUTs of {FAST_MS} ms",
        rounds.ratio,
        rounds.spread,
        Target(Bound.AT_LEAST, 0.8),
        (
            f"{limits.REMOTE_COMMITS_IN_FLIGHT_MAX} commits in flight, {SEGMENTS} segments, one writer",
            f"a PUT carries {slow.bytes / slow.puts / 2**20:.1f} and {fast.bytes / fast.puts / 2**20:.1f} MiB on average",
            "the PUTs hash their bytes as a signature does, then only wait; the catalog is SQLite, synced",
        ),
    )


class _Side:
    """A store over slow or fast PUTs, with an open writer."""

    def __init__(self, setting: BenchmarkSetting, put_ms: int, batch_mib: int) -> None:
        # As `connect` sets it for an object store.
        remote = Settings(
            commits_in_flight_max=limits.REMOTE_COMMITS_IN_FLIGHT_MAX,
            pending_bytes_max=limits.REMOTE_PENDING_BYTES_MAX,
            verify_ahead=False,
        )
        runtime = Runtime(settings=remote)
        folder = setting.folder / f"puts-{put_ms}-{batch_mib}"
        folder.mkdir()
        self.blobs = Waiting(put_ms)
        self.store = Store(SqliteCatalog(folder, runtime), self.blobs, runtime)
        self.store.scopes.create("bench")
        self.store.streams.create("bench/events", scaling=Fixed(SEGMENTS))
        self._writer = self.store.writer("bench/events")

    def append(self, tables: Sequence[pa.Table], count: int) -> None:
        """Durably appends so many of the tables."""
        for number in range(count):
            self._writer.write_batch(tables[number % len(tables)])
        self._writer.flush()


FIGURE = Benchmark("put_latency", "throughput over a slow object store", run, heavy=True)
