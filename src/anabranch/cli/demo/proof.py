"""Proves that each event of every closed window is in Spark's count or among the late events, and nothing else is.

It counts the events a second time, without Spark: it reads the source stream with the store's own reader, and assigns
each event to its windows by separate arithmetic, so that a mistake in the pipeline's arithmetic can't hide itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.cut import HEAD, StreamCut
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.pipelines.run import Pipeline
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.source.checkpoint import committed
from anabranch.store import Store

LATE_WATERMARK: Final = "_watermark"

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Claim:
    """What to prove about one result stream. Its rows hold a window's `opened`, `closed` and its number of `events`.
    Windows of length `size_us` begin every `slide_us`, at multiples of it since the epoch."""

    source: str
    time: str
    target: str
    late: str
    size_us: int
    slide_us: int


def claims(sql: str) -> list[Claim]:
    """The claims about statements that each count the events of one source in one window."""
    found = []
    for statement in parse(sql):
        (source,), (window,) = statement.sources.values(), statement.windows
        streams = (str(source), window.column, str(statement.target), str(statement.late_target))
        found.append(Claim(*streams, window.size_us, window.slide_us))
    return found


@dataclass(frozen=True, slots=True)
class WindowCount:
    """One closed window, `start_us <= time < end_us`: its event counts from Spark, the late events, and the store."""

    start_us: int
    end_us: int
    spark: int
    late: int
    store: int

    @property
    def ok(self) -> bool:
        """True if nothing is missing and nothing is counted twice."""
        return self.spark + self.late == self.store


@dataclass(frozen=True, slots=True)
class Proof:
    """The closed `windows` in order, the number of windows still `open`, and numbers of events: those of the source
    that the pipeline has `read`, those it has not (`unread`), those of the read ones without a time and so without a
    window (`untimed`), and those in the stream of late events (`late`)."""

    claim: Claim
    windows: tuple[WindowCount, ...]
    open: int
    read: int
    unread: int
    untimed: int
    late: int

    @property
    def ok(self) -> bool:
        """True if every closed window is `ok`."""
        return all(window.ok for window in self.windows)


def prove_pipeline(store: Store, pipeline: Pipeline, claim: Claim) -> Proof:
    """`prove` for what a pipeline has read and closed by now, according to its checkpoints."""
    checkpoint = checkpoint_folder(pipeline.checkpoints[claim.target], store.runtime)
    watermark_us, cuts = committed(store.catalog, checkpoint)
    read_to = cuts.get(store.streams.get(claim.source).id) or store.cuts.head(claim.source)
    return prove(store, claim, watermark_us=watermark_us, read_to=read_to)


def prove(store: Store, claim: Claim, *, watermark_us: int, read_to: StreamCut) -> Proof:
    """Compare the two counts for every window whose end the pipeline's watermark has reached.

    `read_to` is the cut up to which the pipeline has read the source.
    """
    in_store, by_spark, late = Counter[int](), Counter[int](), Counter[int]()
    read = untimed = late_events = 0
    for batch in _batches(store, claim.source, [claim.time], end=read_to):
        column = batch.column(claim.time)
        read, untimed = read + len(column), untimed + column.null_count
        for starts in _window_starts(_micros(column.drop_null()), claim):
            _count(in_store, starts)
    for batch in _batches(store, claim.target, ["opened", "events"]):
        for start, events in zip(_micros(batch.column("opened")), batch.column("events").to_pylist(), strict=True):
            by_spark[int(start)] += events
    for batch in _batches(store, claim.late, [claim.time, LATE_WATERMARK]):
        late_events += batch.num_rows
        watermarks = _micros(batch.column(LATE_WATERMARK))
        for starts in _window_starts(_micros(batch.column(claim.time)), claim):
            _count(late, starts[starts + claim.size_us <= watermarks])  # these windows were closed when it came
    # A window that Spark has written counts as closed even if the watermark is earlier: its count must be right too.
    ends = {start: start + claim.size_us for start in (*in_store, *by_spark, *late)}
    closed = sorted(start for start, end in ends.items() if end <= watermark_us or start in by_spark)
    return Proof(
        claim,
        tuple(WindowCount(start, ends[start], by_spark[start], late[start], in_store[start]) for start in closed),
        open=len(ends) - len(closed),
        read=read,
        unread=store.cuts.distance(claim.source, read_to).events,
        untimed=untimed,
        late=late_events,
    )


_NONE: Final = -1 << 62


def _window_starts(times: Times, claim: Claim) -> Iterator[Times]:
    """For each event the starts of all its windows, as arrays; `_NONE` if it has fewer windows than others."""
    last = times // claim.slide_us * claim.slide_us
    for back in range(-(-claim.size_us // claim.slide_us)):
        starts = last - back * claim.slide_us
        yield np.where(starts + claim.size_us > times, starts, _NONE)


def _count(into: Counter[int], starts: Times) -> None:
    values, counts = np.unique(starts[starts != _NONE], return_counts=True)
    into.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _batches(store: Store, stream: str, columns: list[str], end: StreamCut | None = None) -> Iterator[pa.RecordBatch]:
    if store.streams.exists(stream):
        with store.reader(stream, start=HEAD, end=end, columns=columns) as reader:
            yield from reader.batches()


def _micros(column: pa.Array) -> Times:
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)
