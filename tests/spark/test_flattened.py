"""What Spark's planner looks up in a view that is older than a flattening of the stream. Needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.core import cuts
from anabranch.core.flatten import FlattenPolicy
from anabranch.errors import Truncated
from anabranch.log.upkeep.flatten import flatten
from anabranch.spark.source.batch_end import BatchLimits, StoreTimes, end_of_batch
from anabranch.spark.source.history import plan_history
from anabranch.spark.source.reads import reads_of
from tests.spark.streams import new_store, write


def test_a_batch_and_a_history_are_planned_though_their_view_names_logs_that_are_gone(tmp_path: Path) -> None:
    with new_store(tmp_path, segments=2) as store:
        names = ["s/in", "s/1", "s/2", "s/3"]
        write(store, 0, 10)
        for number, name in enumerate(names[1:], 1):
            store.streams.copy(names[number - 1], name)
            write(store, number * 10, 10, stream=name)
        store.compact(force=True)  # so that append times lie in files
        view = store.streams.view(names[-1])
        head, tail = cuts.head_cut(view), cuts.tail_cut(view)

        def told() -> tuple[object, ...]:
            times = StoreTimes(reads_of(store), view)
            history = plan_history(store, view, head, tail, native=lambda path: True)
            files = [file for layer in history.layers for file in layer]
            rows = [(p.segment, row + p.shift) for file in files for p in file.pieces for row in range(p.row, p.stop)]
            rest = [(segment, offset) for segment, start, stop in history.rest for offset in range(start, stop)]
            return (
                [times.of(segment, offset) for segment, start, stop in places for offset in range(start, stop)],
                [end_of_batch(view, head, BatchLimits(events), times) for events in (1, 7, 15, None)],
                sorted(rows + rest),
            )

        places = cuts.ranges(view, head, tail)
        before = told()
        assert flatten(store.catalog, store.blobs, store.runtime, policy=FlattenPolicy(spans_min=2)).spans
        for name in names[:-1]:
            store.streams.delete(name)
        for _ in range(3):
            store.collect(horizon_us=0)
        assert told() == before
        store.streams.truncate(names[-1], store.cuts.after(names[-1], events=12))
        with pytest.raises(Truncated):
            told()
