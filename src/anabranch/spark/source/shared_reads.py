"""Reads that several queries of one driver share: what one has read of a stream's newest events, the others take from a
file.

Each micro-batch of each query reads its range of a stream in a task of its own, in any of several processes. Queries that
read the same stream ask for nearly the same ranges at nearly the same time. While at least two do
(`anabranch.spark.shared_streams`), a task keeps what it reads as a *piece*: an Arrow file with the events of a
range of offsets, in the driver's folder. Others map it into memory. So the events are fetched and decoded once,
and the load on the store does not grow with the number of queries.

A lock for each segment makes the second of two tasks wait for the first one's piece instead of reading the same. Pieces
are small and removed after half a minute. A task that has waited for some seconds, as for a process that is suspended,
reads by itself. Long ranges are history, which other queries rarely read at the same time: they are not shared.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.model.columns import ADDED
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.spark.source.reads import RangeReads
from anabranch.spark.source.scan import ScanRange

__all__ = ["SharedReads"]

_EVENTS_MAX: Final = 128 * 1024  # of a range that is shared
_PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
_BYTES_MAX: Final = 256 * 1024 * 1024  # of all pieces of a stream
_KEPT_S: Final = 30.0
_LOCK_S: Final = 5.0
_POLL_S: Final = 0.005
_SUFFIX: Final = ".arrow"
_LOCK: Final = ".lock"


class _SharedPart(NamedTuple):
    """The events `start <= offset < stop` of a segment, in a file."""

    start: int
    stop: int
    file: Path


class SharedReads:
    """The events of one stream, by way of pieces in a folder. For one thread."""

    def __init__(self, reads: RangeReads, folder: Path) -> None:
        """`folder` is that of the stream; it exists while reads of the stream are shared."""
        self._reads = reads
        self._folder = folder

    def view(self, stream: StreamName | StreamId) -> StreamView:
        """See `RangeReads.view`."""
        return self._reads.view(stream)

    def rows(
        self, view: StreamView, ranges: Iterable[ScanRange], columns: pa.Schema, *, lossy: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """See `RangeReads.rows`. Events that were truncated in the last half minute may still be found."""
        if lossy:  # a piece holds all events of its range
            yield from self._reads.rows(view, ranges, columns, lossy=True)
            return
        whole = pa.schema([*columns, *ADDED])
        form = hashlib.sha256(whole.to_string(show_field_metadata=False).encode()).hexdigest()[:16]
        for each in ranges:
            if each.events > _EVENTS_MAX:
                yield from self._reads.rows(view, [each], columns)
            else:
                yield from self._shared(view, each, columns, form)

    def _shared(self, view: StreamView, wanted: ScanRange, columns: pa.Schema, form: str) -> Iterator[pa.RecordBatch]:
        at = wanted.start
        while at < wanted.stop:
            rest = wanted._replace(start=at)
            try:
                batches, stop = self._piece(view, rest, columns, form)
            except OSError:  # no space, or the folder is gone since other queries have ended
                yield from self._reads.rows(view, [rest], columns)
                return
            yield from batches
            at = stop

    def _piece(
        self, view: StreamView, wanted: ScanRange, columns: pa.Schema, form: str
    ) -> tuple[list[pa.RecordBatch], int]:
        """The first of the wanted events, and where they end. Raises OSError."""
        name = f"{wanted.segment.packed}-{form}"
        found = self._find(name, wanted.start)
        if found is None:
            with self._locked(name):
                found = self._find(name, wanted.start) or self._make(view, wanted, columns, name)
        stop = min(found.stop, wanted.stop)
        return _cut(_opened(found.file), wanted.start - found.start, stop - found.start), stop

    def _find(self, name: str, offset: int) -> _SharedPart | None:
        """The piece with this offset that reaches furthest."""
        pieces = [each for each in self._pieces(name) if each.start <= offset < each.stop]
        return max(pieces, key=lambda piece: piece.stop, default=None)

    def _pieces(self, name: str) -> Iterator[_SharedPart]:
        prefix = f"{name}-"
        for entry in os.scandir(self._folder):
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                start, stop = entry.name.removeprefix(prefix).removesuffix(_SUFFIX).split("-")
                yield _SharedPart(int(start), int(stop), Path(entry.path))

    def _make(self, view: StreamView, wanted: ScanRange, columns: pa.Schema, name: str) -> _SharedPart:
        """Read events into a new piece: all that are wanted, or as many as fit."""
        self._remove_old()
        fresh, rows = self._folder / f".new-{name}-{os.getpid()}", 0
        schema = pa.schema([*columns, *ADDED])
        batches = self._reads.rows(view, [wanted], columns)
        with pa.OSFile(str(fresh), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
                if sink.tell() > _PIECE_BYTES_MAX:
                    break
        assert rows, "each offset of the range has an event"
        stop = wanted.start + rows
        piece = _SharedPart(wanted.start, stop, self._folder / f"{name}-{wanted.start}-{stop}{_SUFFIX}")
        fresh.replace(piece.file)
        return piece

    def _remove_old(self) -> None:
        """Remove pieces that are old, and the oldest of too many."""
        found = []
        for entry in os.scandir(self._folder):
            if not entry.name.endswith(_LOCK):  # unfinished files of tasks that have ended are removed too
                with suppress(FileNotFoundError):
                    found.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
        left, now = _BYTES_MAX, time.time()
        for written_s, size, path in sorted(found, reverse=True):
            left -= size
            if left < 0 or now - written_s > _KEPT_S:
                with suppress(FileNotFoundError):
                    Path(path).unlink()  # a task that has mapped the file keeps its bytes

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with open(self._folder / f"{name}{_LOCK}", "wb") as lock:
            deadline = time.monotonic() + _LOCK_S
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_S)
            yield


def _opened(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as source:
        yield from pa.ipc.open_stream(source)


def _cut(batches: Iterable[pa.RecordBatch], start: int, stop: int) -> list[pa.RecordBatch]:
    """The rows `start <= row < stop` of batches in a row."""
    found, first = [], 0
    for batch in batches:
        last = first + batch.num_rows
        if first < stop and start < last:
            low, high = max(start - first, 0), min(stop, last) - first
            found.append(batch.slice(low, high - low))
        first = last
    return found
