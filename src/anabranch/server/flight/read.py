"""DoGet: sends the batches of a stream as they are stored, with what a client needs to continue after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.log.view import load
from anabranch.model.columns import ADDED
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.reading.bounds import Place
from anabranch.reading.reader import Reader
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.server.events.page import rate_of
from anabranch.server.flight.pieces import pieces_of
from anabranch.wire.commands import named_stream
from anabranch.wire.v1 import anabranch_pb2 as v1

Sent = tuple[pa.RecordBatch, bytes]

_INT64: Final = pa.int64()


def read(
    broker: Broker, principal: Principal, command: v1.ReadCommand, over: Callable[[], bool]
) -> tuple[pa.Schema, Iterator[Sent]]:
    """The schema, and the batches with their metadata. `over` is called while waiting, and ends it. Raises what opening a
    reader raises."""
    info = allowed_stream(broker, principal, named_stream(command), "read", "read")
    command.stream = str(info.name)
    skipped = _skip(broker, info.id, command) if command.skip_truncated else 0
    reader = _open(broker, command)
    if not command.compact or command.no_columns:  # without a column, Arrow would not know how many rows there are
        return reader.schema, _batches(
            broker, principal, reader, command, over, _BatchCutter(reader.schema, compact=False)
        )
    schema = pa.schema(list(reader.schema)[: -len(ADDED)])
    return schema, _batches(
        broker, principal, reader, command, over, _BatchCutter(schema, compact=True, skipped=skipped)
    )


def _open(broker: Broker, command: v1.ReadCommand) -> Reader:
    if command.HasField("not_before") != command.HasField("before"):
        raise InvalidArgument("not_before and before are given together")
    if command.batch_rows < 0:
        raise InvalidArgument(f"a batch holds at least one row, not {command.batch_rows}")
    by: Any = command.by or "append"
    columns = list(command.columns)
    between: Any = None
    if command.HasField("before"):
        between = (_place(command.not_before), _place(command.before))
    return broker.store.reader(
        command.stream,
        start=_place(command.start) if command.HasField("start") else HEAD,
        end=_place(command.end) if command.HasField("end") else None,
        follow=command.follow,
        columns=columns if columns or command.no_columns else None,
        between=between,
        by=by,
        batch_rows=command.batch_rows or limits.READ_ROWS_MAX,
        rate=rate_of(command.events_per_s or None, command.bytes_per_s or None),
    )


def _skip(broker: Broker, stream: StreamId, command: v1.ReadCommand) -> int:
    """Move the command's start past what was truncated, and its end where segments were replaced. Returns how many events
    are gone."""
    with broker.store.catalog.reading() as reading:
        view = load(reading, stream)
    start = StreamCut.parse(command.start.text)
    if command.HasField("end") and not start.as_dict().keys() <= view.segments.keys():
        end = cuts.map_relocated(view, StreamCut.parse(command.end.text)) or cuts.tail_cut(view)
        command.end.text = str(end)
    goal, gone = cuts.skip_truncated(view, start)
    command.start.text = str(goal)
    return gone


def _place(place: v1.Place) -> Place:
    return place.time_us if place.HasField("time_us") else place.text


def _batches(
    broker: Broker,
    principal: Principal,
    reader: Reader,
    command: v1.ReadCommand,
    over: Callable[[], bool],
    sender: _BatchCutter,
) -> Iterator[Sent]:
    clock, guard = broker.store.runtime.clock, broker.guard
    checked_at, lasting = clock.monotonic(), command.follow or reader.rate is not None
    tells_tail = command.follow and command.compact and reader.rate is None
    at_tail = not tells_tail  # the client knows
    with reader, guard.hold(principal, "followers" if command.follow else "connections"):
        yield from sender.opening(reader, tells_tail=tells_tail)
        while True:
            batch = reader.read(limits.FLIGHT_POLL_S if lasting and at_tail else 0.0)
            if lasting and clock.monotonic() - checked_at > limits.FLIGHT_RECHECK_S:
                guard.authorize(
                    principal, "read", str(broker.store.streams.get(reader.position.stream).name), verb="read"
                )
                checked_at = clock.monotonic()
            if batch is not None:
                at_tail = not tells_tail
                guard.admit(principal, calls=0, bytes_=batch.nbytes)
                yield from sender.sent(batch, reader.position)
                continue
            if reader.position != sender.position:  # events were left out
                yield sender.empty(reader.position)
            if over() or reader.at_end or not lasting:
                return
            if not at_tail:
                at_tail = True
                yield sender.tail()


class _BatchCutter:
    """Cuts a reader's batches to pieces that fit what may be ahead of the client, and says where each ends."""

    def __init__(self, schema: pa.Schema, *, compact: bool, skipped: int = 0) -> None:
        self._skipped = skipped
        self.position: StreamCut | None = None  # after what was sent
        self._schema = schema
        self._compact = compact

    def sent(self, batch: pa.RecordBatch, position: StreamCut) -> Iterator[Sent]:
        """A batch of the reader, which is at `position` after it."""
        segment = SegmentId.unpack(batch.column(batch.num_columns - 3)[0].as_py())
        offsets = position.as_dict()
        begin = 0
        for piece in pieces_of(batch):
            begin += piece.num_rows
            last = begin == batch.num_rows
            stop = offsets[segment] if last else piece.column(piece.num_columns - 2)[-1].as_py() + 1
            after = position if last else StreamCut.of(position.stream, {**offsets, segment: stop})
            yield self._piece(piece, segment, stop, after)

    def opening(self, reader: Reader, *, tells_tail: bool) -> Iterator[Sent]:
        """Where the read begins and ends."""
        self.position = reader.position
        if self._compact:
            end = "" if reader.end is None else str(reader.end)
            metadata = v1.BatchMetadata(position=str(self.position), end=end, skipped=self._skipped)
            if tells_tail:
                metadata.at_tail = False
            yield pa.RecordBatch.from_pylist([], schema=self._schema), metadata.SerializeToString()

    def tail(self) -> Sent:
        """Says that there is nothing more at present."""
        batch = pa.RecordBatch.from_pylist([], schema=self._schema)
        return batch, v1.BatchMetadata(at_tail=True).SerializeToString()

    def empty(self, position: StreamCut) -> Sent:
        """Says how far was read without a row."""
        self.position = position
        batch = pa.RecordBatch.from_pylist([], schema=self._schema)
        return batch, v1.BatchMetadata(position=str(position)).SerializeToString()

    def _piece(self, piece: pa.RecordBatch, segment: SegmentId, stop: int, after: StreamCut) -> Sent:
        before, self.position = self.position, after
        if not self._compact:
            return piece, v1.BatchMetadata(position=str(after)).SerializeToString()
        follows = before is not None and _only_moves(before, after, segment)
        metadata = v1.BatchMetadata(position="" if follows else str(after), segment=segment.packed, stop=stop)
        count = piece.num_columns - len(ADDED)
        offsets, appended = piece.column(count + 1), piece.column(count + 2).cast(_INT64)
        metadata.first = offsets[0].as_py()
        if offsets[-1].as_py() - metadata.first != len(offsets) - 1:
            metadata.offsets = offsets.to_numpy().tobytes()
        times = pc.min_max(appended).as_py()
        if times["min"] == times["max"]:
            metadata.appended_us = times["min"]
        else:
            metadata.appended_times = appended.to_numpy().tobytes()
        batch = pa.RecordBatch.from_arrays(piece.columns[:count], schema=self._schema)
        return batch, metadata.SerializeToString()


def _only_moves(before: StreamCut, after: StreamCut, segment: SegmentId) -> bool:
    """True if the cuts differ in this segment's offset alone."""
    return len(before.offsets) == len(after.offsets) and all(
        old == new or old[0] == new[0] == segment for old, new in zip(before.offsets, after.offsets, strict=True)
    )
