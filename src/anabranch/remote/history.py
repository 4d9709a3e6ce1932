"""History of a store that a broker serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from anabranch.errors import NotRemote
from anabranch.model.columns import ADDED
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamInfo
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.history.files import HistoryFiles
from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.remote.places import sent_place
from anabranch.remote.read_stream import read_stream
from anabranch.remote.verbs import Owner
from anabranch.store.addresses import StoreAddresses
from anabranch.store.history_range import HistoryRange
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.wire.verbs import VERBS

if TYPE_CHECKING:
    from anabranch.store import Store


class RemoteHistoryRange(HistoryRange):
    """A range that opens a connection to the brokers when it is used in another process. It carries no token and no
    certificate: that process uses its ANABRANCH_TOKEN, or passes `store=`."""

    __slots__ = ()

    @staticmethod
    def _connect(addresses: StoreAddresses) -> AbstractContextManager[Store]:
        from anabranch import connect

        return connect(addresses.url)


class RemoteHistory:
    """See `HistorySource`. `url` is the store's."""

    def __init__(self, owner: Owner, url: str) -> None:
        self._caller = owner.caller
        self._addresses = StoreAddresses(url)
        self.runtime = owner.runtime
        self.cache = RangeCache(self.runtime.tasks, self.runtime.settings.history_cache_bytes_max)
        self.check_open, self.keep, self.forget = owner.check_open, owner.keep, owner.forget

    def open(self, stream: object) -> StreamInfo:
        """The stream. Raises StreamNotFound, PermissionDenied."""
        return cast(StreamInfo, self._call("open", stream=stream))

    def columns(self, stream: StreamId) -> pa.Schema:
        """See `HistorySource.columns`."""
        return self._caller.call(VERBS["streams.get"], {"name": stream}).schema.columns

    def version(self, part: SegmentPartRange) -> int:
        """See `HistorySource.version`."""
        return cast(int, self._call("version", stream=part.stream, segment=part.segment, start=part.start))

    def cut(self, stream: StreamId, place: Place, by: TimeKind) -> StreamCut:
        """The cut before the first event at or after a place. Raises what `Store.reader` raises for a place."""
        sent = sent_place(place, self.runtime.settings.times)
        return cast(StreamCut, self._call("cut", stream=stream, place=sent, by=by))

    def ranges(self, stream: StreamId, start: Place, end: Place, by: TimeKind, bytes_max: int) -> list[HistoryRange]:
        """See `History.ranges`."""
        rules = self.runtime.settings.times
        first, last = sent_place(start, rules), sent_place(end, rules)
        found = self._call("ranges", stream=stream, start=first, end=last, by=by, bytes_max=bytes_max)
        return [
            RemoteHistoryRange(each.stream, each.segment, each.start, each.stop, each.size, self._addresses, self)
            for each in found
        ]

    def batches(self, part: SegmentPartRange, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """See `HistoryRange.batches`. After a lost connection it continues after the last batch that it received."""
        command = v1.RangeReadCommand(
            stream_id=part.stream, segment=part.segment.packed, start=part.start, stop=part.stop
        )
        command.columns.extend(() if columns is None else columns)
        command.no_columns = columns is not None and not columns

        def received(batch: pa.RecordBatch) -> None:
            command.start = batch.column(batch.num_columns - 2)[-1].as_py() + 1
            del command.columns[:]
            command.columns.extend(batch.schema.names[: -len(ADDED)])
            command.no_columns = not command.columns

        for batch in read_stream(self._caller.connection, command, received):
            yield batch
            self.check_open()

    def files(self, stream: StreamId, start: Place, end: Place, by: TimeKind) -> HistoryFiles:
        """Raises NotRemote: the files are the store's."""
        raise NotRemote(
            "the Parquet files of history belong to the store's own machine or bucket, so a broker does not list them: "
            "use the store's own address, or read ranges"
        )

    def _call(self, verb: str, **arguments: object) -> Any:
        return self._caller.call(VERBS[f"history.{verb}"], arguments)
