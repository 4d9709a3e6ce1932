"""What the processes under torture do: write, follow, change the streams, tidy up."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError, AppendUncertain
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.testing.history import Kind, Outcome
from anabranch.testing.ledger import Event
from anabranch.testing.record import RecordedStore, RecordedWriter, Recorder, place_of
from torture.child import Tell, recorder
from torture.place import STREAMS, Place

Pending = tuple[list[Event], Callable[[], list[ab.EventPointer]]]
_KEYS = 8  # that all writers share
_PENDING_MAX = 60
_AGAIN_S = 0.2  # between two tries of what an outage refused
_HORIZON_US = 1_500_000


def write(tell: Tell, place: Place, stop: Path, stream: str, name: str, seed: int) -> None:
    """Write until the file `stop` is there: single events and batches, inlined and in blobs, atomic and not, many at a
    time; tell each event before it is handed over and each answer when it comes."""
    rng = random.Random(seed)
    numbers = [0] * _KEYS
    pending: deque[Pending] = deque()
    history = recorder(name, stop.parent)

    def settle() -> None:
        events, result = pending.popleft()
        try:
            pointers = result()
        except AppendUncertain:
            tell("unknown", *(_name(event) for event in events))
        except AnabranchError as exc:
            tell("refused", type(exc).__name__, *(_name(event) for event in events))
        else:
            for event, pointer in zip(events, pointers, strict=True):
                tell("acked", _name(event), pointer)

    while not stop.exists():
        try:
            with place.open(seed) as store, _client(store, history, name).writer(stream) as writer:
                while not stop.exists():
                    _write_some(tell, rng, writer, name, numbers, pending)
                    while len(pending) > rng.choice((0, 10, _PENDING_MAX)):
                        settle()
                    time.sleep(rng.random() * 0.004)
                while pending:
                    settle()
        except AnabranchError as exc:
            tell("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)
        while pending:  # their writer is closed: each has its answer by now
            settle()


def _client(store: ab.Store, history: Recorder, name: str) -> RecordedStore:
    return RecordedStore(store, history, name, name_of=event_name)


def event_name(stream: StreamId, payload: bytes) -> str:
    """An event's name in a history."""
    return f"{stream:016x} {payload.rstrip(b'x').decode().rstrip('|')}"


def _write_some(
    tell: Tell, rng: random.Random, writer: RecordedWriter, name: str, numbers: list[int], pending: deque[Pending]
) -> None:
    count = rng.choice((1, 1, 1, 2, 8, 30))
    padding = rng.choice((0, 0, 0, 0, 3_000))
    events = []
    for _ in range(count):
        key = rng.randrange(_KEYS)
        events.append(Event(name, f"k{key}", numbers[key]))
        numbers[key] += 1
    atomic = count > 1 and rng.random() < 0.3
    tell("unit" if atomic else "try", *(_name(event) for event in events))
    try:
        if count == 1:
            answer = writer.write(events[0].payload(padding), key=events[0].key)
            pending.append((events, lambda: [answer()]))
        else:
            table = pa.table({"key": [e.key for e in events], "payload": [e.payload(padding) for e in events]})
            answers = writer.write_batch(table, atomic=atomic)
            if atomic:
                pending.append((events, lambda: [answer() for answer in answers]))
            else:  # parts of it may be refused alone
                pending.extend(([event], _alone(answer)) for event, answer in zip(events, answers, strict=True))
    except AnabranchError as exc:
        # Of a batch that was accepted in part nothing is known; `write_batch` says so by this alone.
        tell("unknown" if count > 1 else "refused", *([] if count > 1 else [type(exc).__name__]), *map(_name, events))
        raise


def _alone(answer: Callable[[], ab.EventPointer]) -> Callable[[], list[ab.EventPointer]]:
    return lambda: [answer()]


def _name(event: Event) -> str:
    return f"{event.writer}|{event.key}|{event.number}"


def follow(tell: Tell, place: Place, stop: Path, stream: str, start: str | None, name: str, seed: int) -> None:
    """Follow a stream from a cut's text, or its head; tell each event and, behind a few, the position."""
    at = ab.HEAD if start is None else StreamCut.parse(start)
    history = recorder(name, stop.parent)
    while not stop.exists():
        try:
            with place.open(seed) as store, store.reader(stream, start=at, follow=True, batch_rows=50) as reader:
                while not stop.exists():
                    asked = history.moment()
                    batch = reader.read(0.2)
                    if batch is not None:
                        _note_read(history, name, reader, batch, asked)
                        at = _saw(tell, batch, reader)
        except AnabranchError as exc:
            tell("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def read_rest(tell: Tell, place: Place, stream: str, start: str | None) -> None:
    """As `follow`, to the tail as of now."""
    at = ab.HEAD if start is None else StreamCut.parse(start)
    with place.open(0) as store, store.reader(stream, start=at) as reader:
        for batch in reader.batches():
            _saw(tell, batch, reader)


def _note_read(history: Recorder, client: str, reader: ab.Reader, batch: pa.RecordBatch, asked: int) -> None:
    """A read for each run of events of a segment."""
    stream = reader.position.stream
    rows = zip(*(batch.column(each).to_pylist() for each in ("_segment", "_offset", "payload")), strict=True)
    for segment, run in groupby(rows, key=lambda row: row[0]):
        events = list(run)
        place = place_of(stream, SegmentId.unpack(segment))
        names = tuple(event_name(stream, payload) for _, _, payload in events)
        read = history.begin(client, Kind.READ, place, invoked=asked, offset=events[0][1])
        history.end(read, Outcome.OK, events=names)


def _saw(tell: Tell, batch: pa.RecordBatch, reader: ab.Reader) -> StreamCut:
    rows = zip(*(batch.column(name).to_pylist() for name in ("_segment", "_offset", "payload")), strict=True)
    tell("saw", *(f"{segment}:{offset}:{payload.rstrip(b'x').decode()}" for segment, offset, payload in rows))
    tell("at", reader.position)
    return reader.position


def change(tell: Tell, place: Place, stop: Path, name: str, seed: int) -> None:
    """Scale the streams to and fro, and look at the lengths of their segments."""
    rng = random.Random(seed)
    history = recorder(name, stop.parent)
    while not stop.exists():
        try:
            with place.open(seed) as store:
                client = _client(store, history, name)
                while not stop.exists():
                    stream, count = rng.choice(STREAMS), rng.choice((1, 2, 3, 6))
                    store.streams.scale(stream, count)
                    tell("did", "scale")
                    client.look(stream)
                    time.sleep(rng.random())
        except AnabranchError as exc:
            tell("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def tidy(tell: Tell, place: Place, stop: Path, seed: int) -> None:
    """Compact and collect, with a horizon that a stopped writer falls behind."""
    rng = random.Random(seed)
    while not stop.exists():
        try:
            with place.open(seed) as store:
                while not stop.exists():
                    if rng.random() < 0.5:
                        store.compact(force=True)
                        tell("did", "compact")
                    else:
                        store.collect(horizon_us=_HORIZON_US)
                        tell("did", "collect")
                    time.sleep(rng.random())
        except AnabranchError as exc:
            tell("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)
