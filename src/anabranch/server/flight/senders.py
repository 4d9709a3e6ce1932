"""Makes the batches for a client from a reader's rows, each with its position in the metadata: `PlainSender` for any
Flight client, `CompactSender` for ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.constant_columns import constant
from anabranch.log.read import SegmentRows, appended_of, offsets_of
from anabranch.model.columns import ADDED
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.reading.reader import Reader
from anabranch.server.flight.pieces import rows_of_piece
from anabranch.wire.v1 import anabranch_pb2 as v1

Sent = tuple[pa.RecordBatch, bytes]

_INT64: Final = pa.int64()


class _Added(NamedTuple):
    """Rows that are to be sent, how large they are, and the offsets after them."""

    segment: SegmentId
    rows: SegmentRows
    bytes: int
    after: Mapping[SegmentId, int]


class Sender:
    """The base of both senders. `schema` is the schema of the batches."""

    schema: pa.Schema
    _bytes_min: int  # from this size on, added rows are sent before more are added

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._stream = reader.position.stream
        self._added: list[_Added] = []
        self._bytes = 0
        self._known: Mapping[SegmentId, int] = dict(reader.offsets)  # the offsets after the rows that were sent

    def opening(self) -> Iterator[Sent]:
        """The messages before the first rows."""
        return iter(())

    def add(self, segment: SegmentId, rows: SegmentRows, size: int) -> None:
        """Take rows of the reader, of `size` bytes. The reader's position is already after them."""
        after = dict(self._reader.offsets)
        for piece in _pieces(rows, size):
            here = after if piece.stop == rows.stop else {**after, segment: piece.stop}
            self._added.append(_Added(segment, piece, size * piece.batch.num_rows // rows.batch.num_rows, here))
        self._bytes += size

    @property
    def full(self) -> bool:
        """Whether the added rows are to be sent before more are added."""
        return self._bytes >= self._bytes_min

    def sent(self) -> Iterator[Sent]:
        """Remove all added rows, and return them as batches."""
        added, self._added, self._bytes = self._added, [], 0
        return self._batches(added)

    @property
    def behind(self) -> bool:
        """Whether the reader is further than the client knows: events were left out."""
        return self._known != self._reader.offsets

    def position(self) -> Sent:
        """The message that says how far the reader is, without a row."""
        self._known = dict(self._reader.offsets)
        return self._without_rows(v1.BatchMetadata(position=self._cut(self._known)))

    def tail(self) -> Sent:
        """The message that says that the reader is at the tail."""
        return self._without_rows(v1.BatchMetadata(at_tail=True))

    def _batches(self, added: list[_Added]) -> Iterator[Sent]:
        raise NotImplementedError

    def _without_rows(self, metadata: v1.BatchMetadata) -> Sent:
        return pa.RecordBatch.from_pylist([], schema=self.schema), metadata.SerializeToString()

    def _cut(self, offsets: Mapping[SegmentId, int]) -> str:
        return str(StreamCut.of(self._stream, offsets))


class PlainSender(Sender):
    """A batch is of one segment, as in `Reader.batches`, with the cut after it."""

    _bytes_min = 0

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.schema = reader.schema

    def _batches(self, added: list[_Added]) -> Iterator[Sent]:
        for segment, rows, _, after in added:
            self._known = after
            columns = rows.batch.columns[: len(self.schema) - len(ADDED)]
            more = [constant(segment.packed, rows.batch.num_rows), offsets_of(rows), appended_of(rows)]
            batch = pa.RecordBatch.from_arrays([*columns, *more], schema=self.schema)
            yield batch, v1.BatchMetadata(position=self._cut(after)).SerializeToString()


class CompactSender(Sender):
    """A batch has rows of one or several segments, because a batch of a thousand rows costs nearly as much as one of
    ten thousand. The metadata names the segments, with the offsets and append times of their rows."""

    _bytes_min = limits.FLIGHT_BATCH_BYTES

    def __init__(self, reader: Reader, skipped: int, *, reports_tail: bool) -> None:
        super().__init__(reader)
        self.schema = pa.schema(list(reader.schema)[: -len(ADDED)])
        self._skipped = skipped
        self._reports_tail = reports_tail

    def opening(self) -> Iterator[Sent]:
        """Where the read begins and ends."""
        end = "" if self._reader.end is None else str(self._reader.end)
        metadata = v1.BatchMetadata(position=self._cut(self._known), end=end, skipped=self._skipped)
        if self._reports_tail:
            metadata.at_tail = False
        yield self._without_rows(metadata)

    def _batches(self, added: list[_Added]) -> Iterator[Sent]:
        waiting = deque(added)
        del added
        while waiting:
            together = [waiting.popleft()]
            size = together[0].bytes
            while waiting and size + waiting[0].bytes <= limits.FLIGHT_BATCH_BYTES:
                together.append(waiting.popleft())
                size += together[-1].bytes
            batch = self._batch(together)
            # While a slow client makes this generator wait at `yield`, the rows are not kept a second time.
            together = []
            yield batch

    def _batch(self, added: list[_Added]) -> Sent:
        metadata = v1.BatchMetadata()
        for segment, rows, _, after in added:
            count, appended = rows.batch.num_rows, rows.appended
            run = metadata.runs.add(rows=count, segment=segment.packed, first=rows.first, stop=rows.stop)
            if {**self._known, segment: rows.stop} != after:
                run.position = self._cut(after)
            self._known = after
            if rows.offsets is not None:
                run.first = rows.offsets[0].as_py()
                run.offsets = rows.offsets.to_numpy().tobytes()
            if isinstance(appended, int):
                run.appended_us = appended
                continue
            times = appended.cast(_INT64)
            lowest_and_highest = pc.min_max(times)
            run.appended_us = lowest_and_highest["min"].as_py()
            if run.appended_us != lowest_and_highest["max"].as_py():
                run.appended_times = times.to_numpy().tobytes()
        batches = [each.rows.batch for each in added]
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return batch, metadata.SerializeToString()


def _pieces(rows: SegmentRows, size: int) -> list[SegmentRows]:
    """Rows of `size` bytes, sliced without copies into pieces that fit the limit of bytes ahead of a client."""
    step = rows_of_piece(rows.batch.num_rows, size)
    pieces = []
    while rows.batch.num_rows > step:
        piece, rows = rows.split(step)
        pieces.append(piece)
    return [*pieces, rows]
