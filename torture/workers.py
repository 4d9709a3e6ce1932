"""What the processes under torture do: write, follow, change the streams, run upkeep."""

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
from tests.simulation.history import Kind, Outcome
from tests.simulation.ledger import Event
from tests.simulation.record import RecordedStore, RecordedWriter, Recorder, place_of
from torture.child import Log, recorder
from torture.location import STREAMS, StoreLocation

Pending = tuple[list[Event], Callable[[], list[ab.EventPointer]]]
_KEYS = 8  # shared by all writers
_PENDING_MAX = 60
_AGAIN_S = 0.2  # pause before repeating what an outage refused
_HORIZON_US = 1_500_000


def write(log: Log, place: StoreLocation, stop: Path, stream: str, name: str, seed: int) -> None:
    """Writes until the file `stop` exists: single events and batches, inlined and in blobs, atomic and not, many at
    a time; logs each event before it is written and each answer when it arrives."""
    rng = random.Random(seed)
    numbers = [0] * _KEYS
    pending: deque[Pending] = deque()
    history = recorder(name, stop.parent)

    def settle() -> None:
        events, result = pending.popleft()
        try:
            pointers = result()
        except AppendUncertain:
            log("unknown", *(_name(event) for event in events))
        except AnabranchError as exc:
            log("refused", type(exc).__name__, *(_name(event) for event in events))
        else:
            for event, pointer in zip(events, pointers, strict=True):
                log("acked", _name(event), pointer)

    while not stop.exists():
        try:
            with place.open(seed) as store, _client(store, history, name).writer(stream) as writer:
                while not stop.exists():
                    _write_some(log, rng, writer, name, numbers, pending)
                    while len(pending) > rng.choice((0, 10, _PENDING_MAX)):
                        settle()
                    time.sleep(rng.random() * 0.004)
                while pending:
                    settle()
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)
        while pending:  # their writer is closed: each has its answer by now
            settle()


def _client(store: ab.Store, history: Recorder, name: str) -> RecordedStore:
    return RecordedStore(store, history, name, name_of=event_name)


def event_name(stream: StreamId, payload: bytes) -> str:
    """Returns an event's name in a history."""
    return f"{stream:016x} {payload.rstrip(b'x').decode().rstrip('|')}"


def _write_some(
    log: Log, rng: random.Random, writer: RecordedWriter, name: str, numbers: list[int], pending: deque[Pending]
) -> None:
    count = rng.choice((1, 1, 1, 2, 8, 30))
    padding = rng.choice((0, 0, 0, 0, 3_000))
    events = []
    for _ in range(count):
        key = rng.randrange(_KEYS)
        events.append(Event(name, f"k{key}", numbers[key]))
        numbers[key] += 1
    atomic = count > 1 and rng.random() < 0.3
    log("unit" if atomic else "try", *(_name(event) for event in events))
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
                pending.extend(([event], _settled_alone(answer)) for event, answer in zip(events, answers, strict=True))
    except AnabranchError as exc:
        # If a batch was accepted in part, nothing is known of its events; this error of `write_batch` is the only sign.
        log("unknown" if count > 1 else "refused", *([] if count > 1 else [type(exc).__name__]), *map(_name, events))
        raise


def _settled_alone(answer: Callable[[], ab.EventPointer]) -> Callable[[], list[ab.EventPointer]]:
    return lambda: [answer()]


def _name(event: Event) -> str:
    return f"{event.writer}|{event.key}|{event.number}"


def follow(log: Log, place: StoreLocation, stop: Path, stream: str, start: str | None, name: str, seed: int) -> None:
    """Follows a stream from a cut's text, or its head; logs each event and, after every few, the position."""
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
                        at = _log_read(log, batch, reader)
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def read_rest(log: Log, place: StoreLocation, stream: str, start: str | None) -> None:
    """Like `follow`, to the tail as of now."""
    at = ab.HEAD if start is None else StreamCut.parse(start)
    with place.open(0) as store, store.reader(stream, start=at) as reader:
        for batch in reader.batches():
            _log_read(log, batch, reader)


def _note_read(history: Recorder, client: str, reader: ab.Reader, batch: pa.RecordBatch, asked: int) -> None:
    """Records a read for each run of events of a segment."""
    stream = reader.position.stream
    rows = zip(*(batch.column(each).to_pylist() for each in ("_segment", "_offset", "payload")), strict=True)
    for segment, run in groupby(rows, key=lambda row: row[0]):
        events = list(run)
        place = place_of(stream, SegmentId.unpack(segment))
        names = tuple(event_name(stream, payload) for _, _, payload in events)
        read = history.begin(client, Kind.READ, place, invoked=asked, offset=events[0][1])
        history.end(read, Outcome.OK, events=names)


def _log_read(log: Log, batch: pa.RecordBatch, reader: ab.Reader) -> StreamCut:
    rows = zip(*(batch.column(name).to_pylist() for name in ("_segment", "_offset", "payload")), strict=True)
    log("saw", *(f"{segment}:{offset}:{payload.rstrip(b'x').decode()}" for segment, offset, payload in rows))
    log("at", reader.position)
    return reader.position


def change(log: Log, place: StoreLocation, stop: Path, name: str, seed: int) -> None:
    """Scales the streams up and down, and records the lengths of their segments."""
    rng = random.Random(seed)
    history = recorder(name, stop.parent)
    while not stop.exists():
        try:
            with place.open(seed) as store:
                client = _client(store, history, name)
                while not stop.exists():
                    stream, count = rng.choice(STREAMS), rng.choice((1, 2, 3, 6))
                    store.streams.scale(stream, count)
                    log("did", "scale")
                    client.look(stream)
                    time.sleep(rng.random())
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def run_upkeep(log: Log, place: StoreLocation, stop: Path, seed: int) -> None:
    """Compacts and collects, with a horizon that a stopped writer falls behind."""
    rng = random.Random(seed)
    while not stop.exists():
        try:
            with place.open(seed) as store:
                while not stop.exists():
                    if rng.random() < 0.5:
                        store.compact(force=True)
                        log("did", "compact")
                    else:
                        store.collect(horizon_us=_HORIZON_US)
                        log("did", "collect")
                    time.sleep(rng.random())
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)
