"""Routing of a writer's pending batches: to the open segments of its stream, numbered for the logs of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from anabranch.core.raw_event import RawEvent
from anabranch.errors import CorruptCatalog, InvalidArgument
from anabranch.log.commit import RoutedPart
from anabranch.log.view import refuse_other_kind
from anabranch.model.ids import LogId
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ids import Ids
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.progress import WriterProgress
from anabranch.writing.routes import RoutedRows, points_of


class SchemaVersion(NamedTuple):
    """A schema of the stream, and its version."""

    schema: StreamSchema
    version: int


class Router:
    """Routes the batches of one writer by the stream's segments as of the last `reload`. `fence` is the writer's own, if
    it was opened with one."""

    def __init__(self, progress: WriterProgress, ids: Ids, *, fence: int | None) -> None:
        self._progress = progress
        self._fence = fence
        self._next_spread = ids.bits(63)
        self._refusing_logs: set[LogId] = set()
        self.routes = progress.reload()
        # New events conform to the last schema. Batches in the queue may have the columns of an earlier one.
        self._schemas = [SchemaVersion(self.routes.info.schema, self.routes.info.schema_version)]

    @property
    def schema(self) -> StreamSchema:
        """The schema that new batches must conform to; batches of an earlier one are still accepted."""
        return self._schemas[-1].schema

    def refresh_schema(self) -> bool:
        """Load the stream's current schema, which batches may then have. Returns False if it is the known one."""
        info = self._progress.info()
        if info is None or info.schema_version == self._schemas[-1].version:
            return False
        self._schemas.append(SchemaVersion(info.schema, info.schema_version))
        return True

    def schema_of(self, events: pa.RecordBatch | RawEvent) -> SchemaVersion:
        """The schema that events conform to."""
        if len(self._schemas) == 1:
            return self._schemas[0]
        return next(each for each in reversed(self._schemas) if each.schema.columns.equals(events.schema))

    def reserve_spread(self, count: int) -> int:
        """Reserve `count` numbers by which events without a key are spread over the segments; returns the first."""
        start = self._next_spread
        self._next_spread += count
        return start

    def split(self, pending: PendingBatch) -> list[RoutedRows]:
        """The rows of a pending batch by segment."""
        if pending.points is None and self.routes.needs_points():
            pending.points = points_of(pending.events, self.schema, self.reserve_spread(pending.events.num_rows))
        return list(self.routes.split(pending.events, pending.points))

    def groups(self, pending: PendingBatch) -> list[list[RoutedRows]]:
        """The rows of a pending batch by segment, in groups that are each appended as one atomic unit. Raises
        InvalidArgument for a conditional batch whose events go to several segments."""
        found = self.split(pending)
        if pending.expected is not None and len(found) > 1:
            raise InvalidArgument("a conditional append needs all its events in one segment")
        return [found] if pending.atomic else [[each] for each in found]

    def part(self, pending: PendingBatch, rows: RoutedRows) -> RoutedPart:
        """The part of a commit for some rows of a pending batch; gives them the next sequence numbers in their log."""
        schema = self.schema_of(pending.events)
        return RoutedPart(
            log=rows.log,
            batch=rows.batch,
            size=pending.size if rows.size is None else rows.size,
            schema=schema.schema,
            schema_version=schema.version,
            writer=self._progress.writer,
            first=self._progress.assign(rows.log, rows.batch.num_rows),
            expected=None if pending.expected is None else pending.expected - self.routes.offsets[rows.log],
            fence=self._fence,
            bounds=rows.bounds,
            prewritten=pending.prewritten,
        )

    def refused_by(self, logs: Iterable[LogId]) -> None:
        """Record that these logs refused events because they belong in other segments now."""
        self._refusing_logs.update(logs)

    def reload(self) -> None:
        """Load the stream's current segments, with nothing in flight, and continue numbering after the appended events.
        Raises what `WriterProgress.reload` raises, Conflict for a raw stream that has become a byte stream, and
        CorruptCatalog if an open segment is in a log that takes no more events: retrying would never end."""
        routes = self._progress.reload()
        refuse_other_kind(routes.info, raw=self.schema.raw)
        self.routes = routes
        refusing, self._refusing_logs = self._refusing_logs, set()
        for log in refusing.intersection(self.routes.logs):
            name = self.routes.info.name
            raise CorruptCatalog(
                f"a segment of '{name}' is open, but its log {log} is not; see: anabranch check {name}"
            )
