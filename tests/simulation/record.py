"""Records the operations of a store's clients as a history (see `history`): in the simulation, where all share one
recorder, and in real processes, where each writes lines of JSON that `load` combines.

A line is written before an operation begins and another when it is answered, so a client that is killed leaves an
operation of unknown outcome.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import xxhash

from anabranch.errors import AnabranchError, AppendRefused, StreamNotFound, StreamSealed
from anabranch.model.cut import HEAD
from anabranch.model.event import Event
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamView
from tests.simulation.operations import Kind, Operation, Outcome

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.writing.writer import Writer

__all__ = ["RecordedStore", "RecordedWriter", "Recorder", "load", "place_of"]

_FIELDS: Final = tuple(field.name for field in fields(Operation))
_REFUSALS: Final = (AppendRefused, StreamSealed, StreamNotFound)


def place_of(stream: StreamId, segment: SegmentId) -> str:
    """Returns a segment's name in a history, which does not change when its stream is renamed."""
    return f"{stream:016x} {segment}"


class Recorder:
    """Keeps operations, and passes them to `sink` as lines. `now` is the clock that all recorders of a history
    share: `time.monotonic_ns` for the processes of one machine. `name` distinguishes recorders."""

    def __init__(self, now: Callable[[], int], *, name: str = "", sink: Callable[[str], object] | None = None) -> None:
        self.operations: list[Operation] = []
        self._now = now
        self._name = name
        self._sink = sink
        self._numbers: dict[int, int] = {}

    def moment(self) -> int:
        """Returns the time, for an operation that is recorded later than it began."""
        return self._now()

    def begin(
        self, client: str, kind: Kind, segment: str = "", *, invoked: int | None = None, **known: Any
    ) -> Operation:
        """Records an operation that is about to be requested."""
        operation = Operation(client, kind, segment, self._now() if invoked is None else invoked, **known)
        self.operations.append(operation)
        if self._sink is not None:
            self._numbers[id(operation)] = len(self.operations)
            self._write(operation, _FIELDS)
        return operation

    def end(self, operation: Operation, outcome: Outcome, *, completed: int | None = None, **learnt: Any) -> None:
        """Records its answer; at `completed` if that was earlier than now."""
        for name, value in learnt.items():
            setattr(operation, name, value)
        operation.outcome = outcome
        operation.completed = self._now() if completed is None else completed
        if self._sink is not None:
            self._write(operation, ("outcome", "completed", *learnt))

    def _write(self, operation: Operation, names: Iterable[str]) -> None:
        assert self._sink is not None
        values = {name: getattr(operation, name) for name in names}
        values |= {name: value.value for name, value in values.items() if isinstance(value, Kind | Outcome)}
        self._sink(json.dumps({"by": self._name, "number": self._numbers[id(operation)], **values}) + "\n")


def load(lines: Iterable[str]) -> list[Operation]:
    """Returns the operations in the lines of all recorders. A truncated last line is skipped."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        found.setdefault((values.pop("by"), values.pop("number")), {}).update(values)
    return [_operation(values) for values in found.values()]


def _operation(values: dict[str, Any]) -> Operation:
    values["kind"], values["outcome"] = Kind(values["kind"]), Outcome(values["outcome"])
    values["events"] = tuple(values["events"])
    return Operation(**values)


def _hash(stream: StreamId, payload: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(payload)


class RecordedStore:
    """A client's view of a store that records all its operations. `name_of` names an event by its stream's id and
    its payload; by default payloads are assumed to be distinct."""

    def __init__(
        self, store: Store, recorder: Recorder, client: str, *, name_of: Callable[[StreamId, bytes], str] | None = None
    ) -> None:
        self.store = store
        self.recorder = recorder
        self.client = client
        self.name_of = name_of or _hash
        self._readers = 0

    def writer(self, stream: str, *, writer_id: str | None = None, fence: int | None = None) -> RecordedWriter:
        """See `Store.writer`."""
        return RecordedWriter(self, self.store.writer(stream, writer_id=writer_id, fence=fence), fence)

    def look(self, stream: str) -> StreamView:
        """Returns the stream's view; each segment's tail, and whether it is sealed, are recorded."""
        recorder, invoked = self.recorder, self.recorder.moment()
        view = self.store.streams.view(stream)
        for segment in view.ordered:
            # Seeing it sealed is recorded as a seal: nothing may follow from here on.
            kind = Kind.SEAL if view.sealed(segment.id) else Kind.TAIL
            operation = recorder.begin(self.client, kind, place_of(view.info.id, segment.id), invoked=invoked)
            sealed = None if kind is Kind.SEAL else False
            recorder.end(operation, Outcome.OK, offset=view.length(segment.id), sealed=sealed)
        return view

    def fence(self, stream: str, fence: int) -> None:
        """See `Streams.fence`. Recorded for segments that were open before and after the call."""
        invoked = self.recorder.moment()
        before = {segment.id for segment in self.store.streams.view(stream).current}
        self.store.streams.fence(stream, fence)
        done = self.recorder.moment()
        after = self.store.streams.view(stream)
        for segment in after.current:
            if segment.id in before:
                place = place_of(after.info.id, segment.id)
                operation = self.recorder.begin(self.client, Kind.FENCE, place, invoked=invoked, fence=fence)
                self.recorder.end(operation, Outcome.OK, completed=done)

    def read(self, stream: str, *, follow: bool = False) -> RecordedReader:
        """Returns a reader from the head; see `Store.reader`."""
        self._readers += 1
        return RecordedReader(self, stream, f"{self.client}.{self._readers}", follow)


class RecordedReader:
    """Yields a stream's events, and records a read for each run of events of a segment."""

    def __init__(self, owner: RecordedStore, stream: str, client: str, follow: bool) -> None:
        self._recorder = owner.recorder
        self._name_of = owner.name_of
        self._client = client
        self._follow = follow
        self._runs: dict[SegmentId, tuple[Operation, list[str]]] = {}
        self._opened = self._recorder.moment()
        self._reader = owner.store.reader(stream, start=HEAD, follow=follow)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()

    def __iter__(self) -> Iterator[Event]:
        whole = False
        try:
            for event in self._reader:
                self._see(event)
                yield event
            whole = not self._follow
        finally:
            for operation, events in self._runs.values():
                self._recorder.end(operation, Outcome.OK, events=tuple(events), to_tail=whole)

    def _see(self, event: Event) -> None:
        pointer = event.pointer
        operation, events = self._runs.get(pointer.segment, (None, []))
        if operation is None or (operation.offset or 0) + len(events) != pointer.offset:
            if operation is not None:
                self._recorder.end(operation, Outcome.OK, events=tuple(events))
            invoked = self._opened if operation is None else None
            place = place_of(pointer.stream, pointer.segment)
            operation = self._recorder.begin(self._client, Kind.READ, place, invoked=invoked, offset=pointer.offset)
            events = []
            self._runs[pointer.segment] = operation, events
        events.append(self._name_of(pointer.stream, event.body))

    def __enter__(self) -> RecordedReader:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class RecordedWriter:
    """A writer whose appends are recorded, one operation per event."""

    def __init__(self, owner: RecordedStore, writer: Writer, fence: int | None) -> None:
        self._recorder = owner.recorder
        self._name_of = owner.name_of
        self._client = owner.client
        self._fence = fence
        self.writer = writer

    def write(self, payload: bytes, *, key: str, expected: int | None = None) -> Callable[[], EventPointer]:
        """See `Writer.write`. Calling the result waits for the answer, and returns or raises it."""
        operation = self._begin(payload, expected=expected)
        try:
            ack = self.writer.write(payload, key=key, expected=expected)
        except AnabranchError as exc:
            self._refuse(operation, exc)
            raise
        return lambda: self._answer(operation, ack.result)

    def write_batch(self, table: pa.Table, *, atomic: bool = False) -> list[Callable[[], EventPointer]]:
        """See `Writer.write_batch`, for tables with a `payload`; returns an answer for each row."""
        payloads = table["payload"].to_pylist()
        unit = f"{self._client} {self._recorder.moment()}" if atomic else None
        operations = [self._begin(payload, unit=unit) for payload in payloads]
        try:
            ack = self.writer.write_batch(table, atomic=atomic)
        except AnabranchError as exc:
            for operation in operations:
                # The first pieces of a batch that is not atomic may have been accepted.
                self._refuse(operation, exc) if atomic else self._recorder.end(operation, Outcome.UNKNOWN)
            raise
        return [
            lambda row=row, operation=operation: self._answer(operation, lambda: ack.pointer(row))  # type: ignore[misc]
            for row, operation in enumerate(operations)
        ]

    def _begin(self, payload: bytes, **known: Any) -> Operation:
        return self._recorder.begin(
            self._client,
            Kind.APPEND,
            events=(self._name_of(self.writer.stream_id, payload),),
            fence=self._fence,
            **known,
        )

    def _answer(self, operation: Operation, ask: Callable[[], EventPointer]) -> EventPointer:
        try:
            pointer = ask()
        except AnabranchError as exc:
            self._refuse(operation, exc)
            raise
        place = place_of(pointer.stream, pointer.segment)
        self._recorder.end(operation, Outcome.OK, segment=place, offset=pointer.offset)
        return pointer

    def _refuse(self, operation: Operation, error: AnabranchError) -> None:
        refused = isinstance(error, _REFUSALS)
        self._recorder.end(operation, Outcome.REFUSED if refused else Outcome.UNKNOWN, reason=type(error).__name__)

    def __enter__(self) -> RecordedWriter:
        self.writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.writer.__exit__(*raised)
