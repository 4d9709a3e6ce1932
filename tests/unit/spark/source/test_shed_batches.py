"""Load shedding of a source over random appends, scales and pauses, without Spark: each batch's keep rate is that of a model
which looks at every event, and the recorded offsets choose the same events again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import anabranch as ab
from anabranch.core import cuts
from anabranch.core.shed_rule import ShedRule, draws
from anabranch.model.cut import StreamCut
from anabranch.spark.options import to_json_option
from anabranch.spark.source.batch_end import BatchLimits, StoreTimes, end_of_batch
from anabranch.spark.source.offsets import SourceOffset
from anabranch.spark.source.reads import reads_of, with_shed_columns
from anabranch.spark.source.source import PipelineSource, StreamReader
from anabranch.spark.types import ADDED, SHED_DRAW, SHED_RATE, spark_schema
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by

SECOND: Final = 1_000_000
STREAM: Final = "s/a"
RULES: Final = st.sampled_from([ShedRule("lag", 2), ShedRule("lag", 0.3), ShedRule("rate", 7), ShedRule("rate", 40)])

Place = tuple[int, int]
"""An event's segment and offset."""


@dataclass(frozen=True)
class Append:
    count: int


@dataclass(frozen=True)
class Pause:
    millis: int


@dataclass(frozen=True)
class Scale:
    segments: int


@dataclass(frozen=True)
class Batch:
    pass


STEPS: Final = st.lists(
    st.one_of(
        st.builds(Append, st.integers(1, 3) | st.integers(1, 200)),
        st.builds(Pause, st.integers(1, 3_000)),
        st.builds(Batch),
        st.builds(Scale, st.integers(1, 3)),
    ),
    min_size=3,
    max_size=14,
)


class Reader(StreamReader):
    """Of a store that is open."""

    def __init__(self, store: Store, rule: ShedRule, **options: str) -> None:
        columns = spark_schema(pa.schema([pa.field("n", pa.int64()), *ADDED, SHED_RATE]))
        source = to_json_option(PipelineSource(shed=rule))
        super().__init__({"path": "/nowhere", "stream": STREAM, "pipelineSource": source, **options}, columns)
        self._store = store

    def _open(self) -> Store:
        return self._store

    def rows(self, start: dict[str, str], end: dict[str, str]) -> pa.Table:
        """What the tasks of a batch yield, in any order."""
        tasks = list(self.partitions(start, end))
        random.Random(len(tasks)).shuffle(tasks)
        found = [batch for task in tasks for batch in self.read(task)]
        return pa.Table.from_batches(found) if found else pa.table({"_segment": [], "_offset": [], "_shed_rate": []})


class Model:
    """Knows each event's append time."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock
        with store.reader(STREAM) as reader:
            events = pa.Table.from_batches(list(reader.batches()), schema=reader.schema)
        names = ("_segment", "_offset", "_appended")
        columns = [events.column(name).cast(pa.int64()).to_pylist() for name in names]
        self._appended: dict[Place, int] = {(s, o): at for s, o, at in zip(*columns, strict=True)}

    def between(self, start: StreamCut, end: StreamCut) -> set[Place]:
        view = self._store.streams.view(STREAM)
        return {
            (segment.packed, offset)
            for segment, low, high in cuts.ranges(view, start, end)
            for offset in range(low, high)
        }

    def load(self, rule: ShedRule, start: StreamCut, end: StreamCut) -> float:
        batch = self.between(start, end)
        oldest = min(self._appended[each] for each in batch)
        if rule.by == "lag":
            return (self._clock.now() - oldest) / SECOND
        unread = self.between(start, self._store.cuts.tail(STREAM))
        counted = batch | {each for each in unread if self._appended[each] < oldest + SECOND}
        newest = max(self._appended[each] for each in counted)
        return len(counted) / max(1, (newest - oldest) / SECOND)


def kept(places: Iterable[Place], rate: float) -> set[Place]:
    return {(segment, offset) for segment, offset in places if draws(segment, np.array([offset]))[0] < rate}


def places_of(rows: pa.Table) -> set[Place]:
    found = list(zip(rows.column("_segment").to_pylist(), rows.column("_offset").to_pylist(), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


@settings(max_examples=15)
@given(RULES, STEPS, st.none() | st.integers(1, 30))
@example(ShedRule("lag", 2), [Append(200), Pause(3_000), Batch()], 20)  # more than the limit, also by the keep rate
@example(ShedRule("lag", 1), [Scale(3), *[Append(1), Pause(700)] * 6, Batch()], None)  # segments lag by different times
@example(ShedRule("rate", 1), [Scale(3), *[Append(1), Pause(700)] * 6, Batch()], None)
def test_batches_of_random_appends_shed_as_the_model_says_and_again_alike(
    rule: ShedRule, steps: Sequence[Append | Pause | Scale | Batch], events_max: int | None
) -> None:
    clock = ManualClock()
    with ab.connect("memory://", runtime=runtime_by(clock)) as store:
        store.scopes.create("s")
        store.streams.create(STREAM, schema=pa.schema([("n", pa.int64())]), key="n")
        reader = Reader(store, rule, pollMs="0")
        limit: Any = ReadAllAvailable() if events_max is None else ReadMaxRows(events_max)
        offsets = [reader.initialOffset()]
        written = 0
        for step in [*steps, *[Batch()] * 4]:
            if isinstance(step, Append):
                store.write(STREAM, pa.table({"n": range(written, written + step.count)}))
                written += step.count
            elif isinstance(step, Pause):
                clock.pass_time(step.millis * 1_000)
            elif isinstance(step, Scale):
                store.streams.scale(STREAM, step.segments)
            else:
                offsets += checked_batch(store, Model(store, clock), reader, rule, offsets[-1], limit)
        model = Model(store, clock)
        seen: list[set[Place]] = []
        for start, end in pairwise(offsets):
            batch = model.between(SourceOffset.from_json(start).cut, SourceOffset.from_json(end).cut)
            wanted = kept(batch, SourceOffset.from_json(end).keep_rate)
            # The rule may have changed since, and Spark asks a new process.
            assert places_of(reader.rows(start, end)) == wanted
            assert places_of(Reader(store, ShedRule("never")).rows(start, end)) == wanted
            seen.append(batch)
        assert len(set().union(*seen)) == sum(map(len, seen))
        if events_max is None:
            assert sum(map(len, seen)) == written


def checked_batch(
    store: Store, model: Model, reader: Reader, rule: ShedRule, start: dict[str, str], limit: Any
) -> list[dict[str, str]]:
    """The next batch's end, if there are events."""
    end = reader.latestOffset(start, limit)
    begin, found = SourceOffset.from_json(start).cut, SourceOffset.from_json(end)
    tail = store.cuts.tail(STREAM)
    if end == start:
        assert not model.between(begin, tail)
        return []
    view = store.streams.view(STREAM)
    limits = BatchLimits(limit.max_rows if isinstance(limit, ReadMaxRows) else None)
    first = end_of_batch(view, cuts.check_cut(view, begin), limits, StoreTimes(reads_of(store), view))
    assert found.keep_rate == rule.keep_rate(model.load(rule, begin, first))
    batch = model.between(begin, found.cut)
    assert model.between(begin, first) <= batch
    if limits.events is not None:  # it counts what is kept
        assert len(batch) <= limits.events / found.keep_rate
    else:
        assert batch >= model.between(begin, first)
    rows = reader.rows(start, end)
    assert set(rows.column(SHED_RATE.name).to_pylist()) <= {found.keep_rate}
    return [end]


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 40)), unique=True, min_size=1, max_size=30)


@given(EVENTS, st.randoms(use_true_random=False), st.floats(0.01, 1), st.data())
def test_events_are_chosen_alike_however_they_are_cut_and_ordered(
    events: list[Place], chance: random.Random, rate: float, data: st.DataObject
) -> None:
    def batches() -> list[pa.RecordBatch]:
        shuffled = chance.sample(events, len(events))
        edges = sorted({0, len(events), *data.draw(st.lists(st.integers(0, len(events)), max_size=4))})
        return [
            pa.RecordBatch.from_pylist([{"n": 1, "_segment": s, "_offset": o} for s, o in shuffled[low:high]])
            for low, high in pairwise(edges)
        ]

    chosen = list(with_shed_columns(iter(batches()), rate, draw=False))
    found = {(row["_segment"], row["_offset"]) for batch in chosen for row in batch.to_pylist()}
    assert found == kept(events, rate)
    assert all(batch.num_rows for batch in chosen)
    assert {row[SHED_RATE.name] for batch in chosen for row in batch.to_pylist()} <= {rate}
    drawn = [row for batch in with_shed_columns(iter(batches()), rate, draw=True) for row in batch.to_pylist()]
    assert sorted((row["_segment"], row["_offset"]) for row in drawn) == sorted(events)
    for row in drawn:
        assert row[SHED_DRAW.name] == draws(row["_segment"], np.array([row["_offset"]]))[0]
        assert row[SHED_RATE.name] == rate
