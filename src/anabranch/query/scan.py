"""The scans that DuckDB requests: one for each occurrence of a stream in a query, owned by that query.

DuckDB pulls batches on any of its query's threads, and continues to fill its buffers between two of our calls. A thread
that is inside Python when the interpreter ends aborts the process. So every pull is counted, and `Scans.close` refuses
further pulls and waits for those in progress. A filter runs in tasks that the scan owns (`filter_ahead.py`), for the
pulling thread would run it alone. Arrow's own scanner is not used, because it reads ahead on threads that can't be
stopped or waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from anabranch.errors import AnabranchError, Closed
from anabranch.query.filter_ahead import FilterAhead
from anabranch.runtime.tasks import Tasks

_T = TypeVar("_T")


class Scans:
    """The scans of one query, from its start until its cursor is closed. Thread-safe."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self._changed = tasks.condition()
        self._scans: list[Scan] = []
        self._closed = False
        self._pulls = 0
        self.failure: AnabranchError | None = None  # the first error of a scan; DuckDB passes on only its text

    def add(self, scan: Scan) -> None:
        """Take ownership of a scan. Raises Closed once the query has ended."""
        with self._changed:
            if self._closed:
                raise Closed("query")
            self._scans.append(scan)

    def pull(self, step: Callable[[], _T]) -> _T:
        """Run one step of a scan, or one call of a function in Python. Raises Closed, StopIteration at the scan's end,
        and what the step raises."""
        with self._changed:
            if self._closed:
                raise Closed("query")
            self._pulls += 1
        try:
            return step()
        except AnabranchError as exc:
            with self._changed:
                if not self._closed:
                    self.failure = self.failure or exc
            raise
        finally:
            with self._changed:
                self._pulls -= 1
                self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """True once the query is being ended."""
        return self._closed

    def stop(self) -> None:
        """Refuse further pulls and make those in progress end soon, without waiting. Harmless when repeated."""
        with self._changed:
            self._closed = True

    def close(self) -> None:
        """Stop, wait until no thread is inside a pull, and close the readers. A second close is harmless."""
        self.stop()
        with self._changed:
            while self._pulls:
                self._changed.wait()
        while self._scans:
            self._scans[-1].close()
            self._scans.pop()


class Scan:
    """The rows of a stream that pass a filter, with some of its columns. DuckDB calls `to_reader` once."""

    def __init__(
        self,
        scans: Scans,
        batches: Generator[pa.RecordBatch],
        read: pa.Schema,
        *,
        columns: Sequence[str] | None,
        filter: pc.Expression | None,  # noqa: A002 - as DuckDB names it
    ) -> None:
        """`read` is the schema of the batches; `columns` are those to return (None: all of them)."""
        self._scans = scans
        self._source = batches
        self.projected_schema: pa.Schema = (
            read if columns is None else pa.schema([read.field(name) for name in columns])
        )
        self._ahead: FilterAhead | None = None
        if filter is not None:
            names = self.projected_schema.names
            self._ahead = FilterAhead(scans.tasks, batches, lambda batch: _filter_batch(batch, filter, names))
        self._rows = self._matching_batches()
        scans.add(self)

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches. Without a filter, each is read on the thread that pulls it."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self)

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._scans.pull(lambda: next(self._rows))

    def close(self) -> None:
        """Stop reading. May be called only while no thread pulls."""
        self._rows.close()
        if self._ahead is not None:
            self._ahead.close()
        self._source.close()

    def _matching_batches(self) -> Generator[pa.RecordBatch]:
        names = self.projected_schema.names
        found: Iterable[Sequence[pa.RecordBatch]] = self._ahead or ([batch.select(names)] for batch in self._source)
        for batches in found:
            if self._scans.closed:  # otherwise a filter that no row passes would be run to the end
                raise Closed("query")
            yield from batches


def _filter_batch(batch: pa.RecordBatch, condition: pc.Expression, names: list[str]) -> list[pa.RecordBatch]:
    """The named columns of the rows that pass, in order. Uses no other thread."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    kept = acero.Declaration("filter", acero.FilterNodeOptions(condition), [source])
    return [piece.select(names) for piece in kept.to_table(use_threads=False).to_batches() if piece.num_rows]
