"""Where a micro-batch ends, over streams of any history. Needs no Spark."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.core import cuts
from anabranch.model.cut import StreamCut
from anabranch.spark.source.batch_end import BatchLimits, StoreTimes, end_of_batch
from anabranch.spark.source.reads import reads_of
from tests.parameters import rest_is_slow
from tests.spark.streams import new_store, rows


@pytest.mark.parametrize("seed", rest_is_slow(range(6)))
@pytest.mark.parametrize("is_compacted", [False, True])
def test_batches_are_whole_commits_in_append_order_and_keep_their_limits(
    tmp_path: Path, seed: int, is_compacted: bool
) -> None:
    chance = random.Random(seed)
    with new_store(tmp_path, segments=chance.randint(1, 4)) as store:
        commit_of: dict[int, int] = {}
        with store.writer("s/in") as writer:
            for number in range(25):
                if chance.random() < 0.2:
                    store.streams.scale("s/in", chance.randint(1, 4))
                if chance.random() < 0.1 and is_compacted:
                    store.compact(force=True)
                size = chance.randint(1, 12)
                first = len(commit_of)
                commit_of |= dict.fromkeys(range(first, first + size), number)
                writer.write_batch(rows(first, size, keys=chance.randint(1, 9)), atomic=True).result()

        limit = chance.choice([None, 1, 3, 12, 30])
        batches = _batches(store, BatchLimits(limit))
        assert sorted(n for batch in batches for n in batch) == sorted(commit_of), f"seed {seed}"
        for batch in batches:
            assert limit is None or len(batch) <= limit, f"seed {seed}"
        # No commit comes before an earlier one; and where the limit is as large as any of them, none is divided.
        order = [commit_of[n] for batch in batches for n in sorted(batch)]
        assert order == sorted(order), f"seed {seed}"
        if limit is None or limit >= 12:
            holders = [{commit_of[n] for n in batch} for batch in batches]
            assert not any(one & other for one, other in pairwise(holders)), f"seed {seed}"


def _batches(store: ab.Store, limits: BatchLimits, *, stop: StreamCut | None = None) -> list[list[int]]:
    """The events of each batch from the head on."""
    view = store.streams.view("s/in")
    start = cuts.head_cut(view)
    found = []
    while (end := end_of_batch(view, start, limits, StoreTimes(reads_of(store), view), stop=stop)) != start:
        held = {segment for segment, *_ in cuts.ranges(view, start, end)}
        assert not any(heir.id in held for segment in held for heir in view.successors(segment))
        with store.reader("s/in", start=start, end=end) as reader:
            batch = pa.Table.from_batches(reader.batches(), reader.schema)
        found.append(batch.column("n").to_pylist())
        start = end
    return found


@pytest.mark.slow
def test_a_limit_in_bytes_is_kept_roughly_and_always_moves(tmp_path: Path) -> None:
    with new_store(tmp_path, segments=3) as store:
        with store.writer("s/in") as writer:
            for first in range(0, 300, 10):
                writer.write_batch(rows(first, 10), atomic=True).result()
        assert {len(batch) for batch in _batches(store, BatchLimits(bytes=1))} == {1}
        batches = _batches(store, BatchLimits(bytes=1000))
        assert 5 < len(batches) < 60
        assert sum(map(len, batches)) == 300


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "count"), rest_is_slow([(1, 200), (1, 600), (7, 600), (100, 600)]))
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_divided_commit_is_read_in_the_order_of_its_event_times(
    tmp_path: Path, limit: int, count: int, is_compacted: bool
) -> None:
    with new_store(tmp_path, segments=4) as store:
        # Most events have one key, and the others come in bursts: shared evenly, or by rows, segments get out of step.
        keys = ["often" if n % 10 else f"rare{n // (count // 4)}" for n in range(count)]
        with store.writer("s/in") as writer:
            table = rows(0, count)
            writer.write_batch(table.set_column(0, "device", pa.array(keys)), atomic=True).result()
        if is_compacted:
            store.compact(force=True)
        batches = _batches(store, BatchLimits(limit))
        assert len(batches) >= count / limit
        assert [n for batch in batches for n in sorted(batch)] == list(range(count))


def test_a_divided_commit_without_event_times_is_read_in_proportion(tmp_path: Path) -> None:
    schema = pa.schema([("device", pa.string()), ("n", pa.int64())])
    with new_store(tmp_path, segments=4, schema=schema) as store:
        with store.writer("s/in") as writer:
            keys = ["often" if n % 10 else f"rare{n // 10 % 12}" for n in range(600)]
            table = pa.table({"device": keys, "n": range(600)})
            writer.write_batch(table, atomic=True).result()
        for batch in _batches(store, BatchLimits(60)):
            rare = sum(n % 10 == 0 for n in batch)
            assert 3 <= rare <= 9, sorted(batch)


def test_a_limit_in_bytes_divides_a_commit_by_event_time_too(tmp_path: Path) -> None:
    with new_store(tmp_path, segments=3) as store:
        with store.writer("s/in") as writer:
            writer.write_batch(rows(0, 300, keys=4), atomic=True).result()
        batches = _batches(store, BatchLimits(bytes=1000))
        assert 5 < len(batches) < 60
        assert [n for batch in batches for n in sorted(batch)] == list(range(300))


def test_nothing_behind_the_stop_is_taken(tmp_path: Path) -> None:
    with new_store(tmp_path, segments=2) as store:
        with store.writer("s/in") as writer:
            writer.write_batch(rows(0, 20), atomic=True).result()
            stop = store.cuts.tail("s/in")
            store.streams.scale("s/in", 3)
            writer.write_batch(rows(20, 20), atomic=True).result()
        for limit in (None, 7):
            found = _batches(store, BatchLimits(limit), stop=stop)
            assert sorted(n for batch in found for n in batch) == list(range(20))
