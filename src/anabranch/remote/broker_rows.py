"""The rows of a broker's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from anabranch.model.columns import select_columns
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.names import StreamName
from anabranch.model.time_kind import time_kind
from anabranch.reading.row_source import ReaderOptions, StreamDelivery
from anabranch.remote.connection import Connection
from anabranch.remote.places import place_message
from anabranch.remote.read_call import ReadCall
from anabranch.remote.stream_description import describe
from anabranch.runtime.ports import Runtime
from anabranch.wire.v1 import anabranch_pb2 as v1

_PAYLOAD: Final = "payload"  # the body of raw events, whatever columns are requested


class BrokerRows:
    """The `RowSource` of a remote store's reader, which reads ahead."""

    def __init__(
        self, connection: Connection, runtime: Runtime, stream: str | StreamName, options: ReaderOptions
    ) -> None:
        """Raises what `StoreRows` raises, PermissionDenied, StoreUnavailable."""
        time_kind(options.by)
        self._connection = connection
        self._runtime = runtime
        info = describe(connection, stream)
        self.options = options
        self.stream, self.name, self.schema = info.id, info.name, info.schema
        self.ignores_timeout = not options.follow
        names = select_columns(options.columns, info.schema.columns)
        needed = [each for each in (info.schema.key, info.schema.time) if each is not None and each not in names]
        rules = runtime.settings.times
        between = options.between_us(rules)
        self._command = v1.ReadCommand(
            stream=str(info.name),
            stream_id=info.id,
            start=place_message(options.start, rules),
            end=None if options.end is None else place_message(options.end, rules),
            follow=options.follow,
            # Also the columns that events need. At least one column, since a batch without columns has no row count.
            columns=[*names, *needed] or info.schema.columns.names[:1],
            not_before=None if between is None else v1.Place(time_us=between[0]),
            before=None if between is None else v1.Place(time_us=between[1]),
            by=options.by,
            batch_rows=options.rows_max,
            compact=True,
        )
        self._closed = False
        self._call = ReadCall(connection, runtime, self._command)
        self.columns: pa.Schema = pa.schema([self._call.schema.field(name) for name in names])
        self.start = self._call.start
        self._positions = self.start.as_dict()
        self._left_out = False  # events, since the last delivery

    @property
    def end(self) -> StreamCut | None:
        """See `RowSource`."""
        return self._call.end

    @property
    def positions(self) -> dict[SegmentId, int]:
        """See `RowSource`."""
        return dict(self._positions)

    @property
    def exhausted(self) -> bool:
        """See `RowSource`."""
        return self._call.exhausted

    def serves(self, *, as_events: bool) -> bool:
        """See `RowSource`."""
        return not (as_events and self.schema.raw) or _PAYLOAD in self._command.columns

    def pull(self, until: float | None, interrupted: Callable[[], bool], *, look: bool) -> StreamDelivery | None:
        """See `RowSource`."""
        while True:
            found = self._call.next(until, interrupted, look=look)
            if found is None:
                return None
            if not isinstance(found, StreamDelivery):
                self._positions, self._left_out = dict(found), True
                continue
            if found.before is not None:
                self._positions = dict(found.before)
            elif self._left_out:
                found = found._replace(before=self.positions)
            self._positions[found.segment], self._left_out = found.rows.stop, False
            return found

    def restart(self, start: StreamCut, *, as_events: bool) -> None:
        """See `RowSource`."""
        if not self.serves(as_events=as_events):
            self._command.columns.append(_PAYLOAD)
        self._open(start)

    def skip_truncated(self, start: StreamCut, *, as_events: bool) -> tuple[StreamCut, int]:
        """See `RowSource`."""
        self._open(start, skip=True)
        return self._call.start, self._call.skipped

    def wake(self) -> None:
        """See `RowSource`."""
        with self._call.changed:
            self._call.changed.notify_all()

    def close(self) -> None:
        """See `RowSource`."""
        self._closed = True
        self._call.close()

    def _open(self, start: StreamCut, *, skip: bool = False) -> None:
        self._call.close()
        self._command.start.text = str(start)
        self._command.skip_truncated = skip
        self._call = ReadCall(self._connection, self._runtime, self._command)
        self._positions, self._left_out = self._call.start.as_dict(), False
        if self._closed:  # meanwhile, by another thread
            self._call.close()
