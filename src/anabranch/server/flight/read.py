"""DoGet: sends the batches of a stream as they are stored, with what a client needs to continue after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.log.view import load
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import StreamId
from anabranch.reading.bounds import Place
from anabranch.reading.reader import Reader
from anabranch.security.guard import Principal
from anabranch.server.abandoned import closed_with
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.server.events.page import rate_of
from anabranch.server.flight.senders import CompactSender, PlainSender, Sender, Sent
from anabranch.server.rights import StreamRight
from anabranch.wire.commands import named_stream
from anabranch.wire.v1 import anabranch_pb2 as v1


def read(
    broker: Broker, principal: Principal, command: v1.ReadCommand, over: Callable[[], bool]
) -> tuple[pa.Schema, Iterator[Sent]]:
    """The schema, and the batches with their metadata. `over` is called while the read waits, and ends it by
    True or an error. Raises what `Store.reader` raises."""
    info = allowed_stream(broker, principal, named_stream(command), "read", "read")
    command.stream = str(info.name)
    skipped = _skip(broker, info.id, command) if command.skip_truncated else 0
    reader = _open(broker, command)
    reports_tail = command.follow and command.compact and reader.rate is None
    # A compact batch without a column would not tell the number of its rows.
    if not command.compact or command.no_columns:
        sender: Sender = PlainSender(reader)
    else:
        sender = CompactSender(reader, skipped, reports_tail=reports_tail)
    batches = _batches(broker, principal, reader, command, over, sender, reports_tail=reports_tail)
    return sender.schema, closed_with(batches, reader.close)


def _open(broker: Broker, command: v1.ReadCommand) -> Reader:
    if command.HasField("not_before") != command.HasField("before"):
        raise InvalidArgument("pass both not_before and before, or neither")
    if command.batch_rows < 0:
        raise InvalidArgument(f"expected at least one row per batch, got {command.batch_rows}")
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
    """Move the command's start after truncated events, and move its end if the segments of the end were replaced.
    Returns how many events were skipped."""
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
    sender: Sender,
    *,
    reports_tail: bool,
) -> Iterator[Sent]:
    guard = broker.guard
    right = StreamRight(broker.store, guard, principal, reader.position.stream, "read", verb="read")
    waits = command.follow or reader.rate is not None
    at_tail = not reports_tail  # the client knows
    with reader, guard.hold(principal, "followers" if command.follow else "connections"):
        yield from sender.opening()
        while True:
            found = reader.read_rows(limits.FLIGHT_POLL_S if waits and at_tail else 0.0)
            right.check()
            if found is not None:
                at_tail = not reports_tail
                try:
                    while found is not None:
                        size = found[1].batch.nbytes
                        guard.admit(principal, calls=0, bytes_=size)
                        sender.add(*found, size)
                        found = None if sender.full else reader.read_rows(look=False)
                except Exception:
                    yield from sender.sent()  # what came before the damage
                    raise
                yield from sender.sent()
                continue
            if sender.behind:  # events were left out
                yield sender.position()
            if over() or reader.at_end or not waits:
                return
            if not at_tail:
                at_tail = True
                yield sender.tail()
