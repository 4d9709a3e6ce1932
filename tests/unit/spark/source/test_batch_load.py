"""How loaded a query is: by the age of its first event, or by how fast events were appended."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import anabranch as ab
from anabranch.core.shed_rule import ShedRule
from anabranch.spark.source.batch_end import StoreTimes, batch_load
from anabranch.spark.source.reads import reads_of
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by

SECOND = 1_000_000
LAG, RATE = ShedRule("lag", 1), ShedRule("rate", 1)


def test_the_load_is_that_of_the_batch_and_of_what_came_with_it(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000 * SECOND)
    with ab.connect(tmp_path / "river", runtime=runtime_by(clock), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", schema=pa.schema([("n", pa.int64())]))
        head = store.cuts.head("s/a")
        ends = []
        for count, pause in ((100, 0.5), (100, 4), (400, 1)):
            store.write("s/a", pa.table({"n": range(count)}))
            ends.append(store.cuts.tail("s/a"))
            clock.pass_time(int(pause * SECOND))
        view = store.streams.view("s/a")
        times = StoreTimes(reads_of(store), view)

        def load(rule: ShedRule, start: ab.StreamCut, end: ab.StreamCut) -> float:
            return batch_load(rule, view, start, end, times, now=clock.now())

        assert [load(LAG, head, end) for end in ends] == [5.5, 5.5, 5.5]
        assert load(LAG, ends[0], ends[1]) == 5.0
        # The first two came within a second; all three within 4.5 s.
        assert [load(RATE, head, end) for end in ends] == [200, 200, 600 / 4.5]
        assert load(RATE, ends[1], ends[2]) == 400
        ((segment, _),) = head
        part = ab.StreamCut.of(head.stream, {segment: 250})
        assert load(RATE, ends[1], part) == 400
