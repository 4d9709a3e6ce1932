"""Exports a reader's batches as an Arrow C stream, for pyarrow, DuckDB and polars, which may pull on any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from anabranch.errors import Closed
from anabranch.runtime.tasks import Tasks


class CStream:
    """Returns batches one at a time, on whichever thread pulls.

    A thread that is executing Python when the interpreter exits aborts the process. So `close` waits for the pull
    under way; that pull and all later ones fail, so a consumer that reads ahead stops. `endless`: a following reader
    has no end but its closing, so its stream ends without an error.
    """

    def __init__(self, tasks: Tasks, batches: Iterator[pa.RecordBatch], closed: Callable[[], bool], *, endless: bool):
        """`closed` returns whether the reader was closed."""
        self._turn = tasks.condition()  # held by the thread that pulls; re-entrant
        self._batches = batches
        self._closed = closed
        self._endless = endless

    def __iter__(self) -> CStream:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._turn:
            batch = next(self._batches, None)
            if self._closed() and not self._endless:  # rows would be missing without an error
                raise Closed("reader")
            if batch is None:
                raise StopIteration
            return batch

    def close(self) -> None:
        """Call once the reader is closed: waits until no other thread is pulling."""
        with self._turn:
            pass
