"""Small values from which the suites build their cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.catalog.port import Catalog
from anabranch.model.append import BlobLocation, Commit, Part, TimeBounds, Unit, Verdict
from anabranch.model.append import Sequence as WriterSequence
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW
from anabranch.model.stream import Scope, Segment, Span, StreamInfo

NOW = Micros(1_700_000_000_000_000)
STREAM = StreamId(77)
SEGMENT = SegmentId(0, 0)


def info(stream: int = STREAM, name: str = "iot/raw", **fields: object) -> StreamInfo:
    """A raw stream."""
    values: dict[str, object] = {
        "schema": RAW,
        "schema_version": 1,
        "tags": {},
        "created_at": NOW,
        "sealed": False,
        "version": 1,
        "epoch": 0,
        "next_number": 1,
    }
    return StreamInfo(id=StreamId(stream), name=StreamName.parse(name), **{**values, **fields})  # type: ignore[arg-type]


def new_stream(catalog: Catalog, stream: int = STREAM, name: str = "iot/raw") -> LogId:
    """Create a stream of one segment, in its scope. Returns the segment's open log."""
    with catalog.writing() as writing:
        value = info(stream, name)
        if writing.scope(value.name.scope) is None:
            writing.put_scope(Scope(value.name.scope, {}, NOW))
        writing.insert_stream(value)
        log = writing.new_log(value.id, appended_at=Micros(0))
        writing.put_segment(value.id, Segment(SEGMENT, FULL_KEY_RANGE, None, 0))
        writing.put_span(value.id, Span(SEGMENT, 0, log, 0, None))
    return log


def part(
    log: int,
    count: int = 1,
    *,
    writer: str | None = None,
    first: int = 0,
    writer_fence: int = 0,
    expected: int | None = None,
    fence: int | None = None,
    blob: str | None = None,
    times: tuple[int, int] | None = None,
    data: bytes = b"events",
) -> Part:
    """A run of `count` events of 10 logical bytes each, inline unless a blob is named."""
    low, high = (None, None) if times is None else times
    return Part(
        log=LogId(log),
        count=count,
        schema=1,
        location=BlobLocation(128 if blob else 0, len(data)),
        checksum=-5,
        size=10 * count,
        bounds=TimeBounds(None if low is None else Micros(low), None if high is None else Micros(high)),
        sequence=None if writer is None else WriterSequence(WriterId(writer), first, writer_fence),
        expected=expected,
        fence=fence,
        blob=blob,
        data=None if blob else data,
    )


def append(catalog: Catalog, *parts: Part, now: int = NOW) -> tuple[Verdict, ...]:
    """Commit each part as a unit of its own; returns one verdict for each."""
    verdicts = catalog.commit(Commit(tuple(Unit((each,)) for each in parts), Micros(now)))
    return tuple(verdict for (verdict,) in verdicts)


def lengths(catalog: Catalog, logs: Sequence[LogId]) -> Mapping[LogId, int]:
    """The lengths of the given logs."""
    with catalog.reading() as reading:
        return {log: state.length for log, state in reading.logs(logs).items()}
