"""Queries of one driver that read one stream: what one has read, the others take from a file."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Truncated
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamView
from anabranch.spark import shared_streams
from anabranch.spark.pipelines.run import run
from anabranch.spark.source import shared_reads
from anabranch.spark.source.reads import RangeReads, read_ranges, reads_of
from anabranch.spark.source.scan import ScanRange
from anabranch.spark.source.shared_reads import SharedReads
from tests.spark.pipelines import COUNTS, SCHEMA, SOURCE, counted, expected, new_store, put, rows
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Counting:
    """Reads of a store that note which ranges are asked for, in a file that all processes append to."""

    def __init__(self, reads: RangeReads, log: Path, pause_s: float = 0.0) -> None:
        self._reads = reads
        self._log = log
        self._pause_s = pause_s
        self.view = reads.view

    def rows(
        self, view: StreamView, ranges: Iterable[ScanRange], columns: pa.Schema, *, lossy: bool = False
    ) -> Iterator[pa.RecordBatch]:
        asked = list(ranges)
        with open(self._log, "a") as log:
            log.writelines(f"{each.segment.packed} {each.start} {each.stop}\n" for each in asked)
        time.sleep(self._pause_s)
        return self._reads.rows(view, asked, columns, lossy=lossy)

    def asked(self) -> list[tuple[int, ...]]:
        return [tuple(map(int, line.split())) for line in self._log.read_text().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def _whole(view: StreamView) -> list[ScanRange]:
    return [ScanRange(each.id, view.segments[each.id].head, view.length(each.id)) for each in view.current]


def _read(reads: RangeReads, view: StreamView, ranges: list[ScanRange]) -> pa.Table:
    return pa.Table.from_batches(read_ranges(reads, view.info.id, ranges, SCHEMA.names, None))


def test_each_event_is_read_once_by_any_number_of_readers_with_any_batches(store: ab.Store, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    folder = _folder(tmp_path)
    counting = Counting(reads_of(store), tmp_path / "asked")
    reached: list[dict[object, int]] = [{} for _ in range(3)]
    found: list[list[pa.Table]] = [[] for _ in range(3)]
    for number in range(12):
        put(store, range(number * 50, number * 50 + 50))
        for reader in chance.sample(range(3), chance.randrange(1, 4)) if number < 11 else range(3):
            view = counting.view(store.streams.get(SOURCE).id)
            ranges = [each._replace(start=reached[reader].get(each.segment, each.start)) for each in _whole(view)]
            reached[reader] = {each.segment: each.stop for each in ranges}
            wanted = [each for each in ranges if each.events]
            found[reader].append(_read(SharedReads(counting, folder), view, wanted))
    view = counting.view(store.streams.get(SOURCE).id)
    direct = _read(reads_of(store), view, _whole(view))
    order = [("_segment", "ascending"), ("_offset", "ascending")]
    for tables in found:
        assert pa.concat_tables(tables).sort_by(order).equals(direct.sort_by(order)), f"seed {seed}"
    asked = sorted(counting.asked())
    assert sum(stop - start for _, start, stop in asked) == 600, f"seed {seed}: {asked}"


def _read_in_process(url: str, folder: Path, log: Path) -> int:
    with ab.connect(url) as store:
        counting = Counting(reads_of(store), log, pause_s=0.5)
        view = counting.view(store.streams.get(SOURCE).id)
        return _read(SharedReads(counting, folder), view, _whole(view)).num_rows


@pytest.mark.process
def test_of_processes_that_read_at_the_same_time_one_reads_and_the_others_wait(store: ab.Store, tmp_path: Path) -> None:
    put(store, range(1_000))
    folder, log = _folder(tmp_path), tmp_path / "asked"
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(_read_in_process, store.url, folder, log) for _ in range(3)]
        assert [run.result() for run in runs] == [1_000] * 3
    assert len(log.read_text().splitlines()) == 2  # the segments


def test_long_ranges_are_not_kept_nor_those_with_other_columns_taken(store: ab.Store, tmp_path: Path) -> None:
    put(store, range(140_000))
    put(store, range(140_000, 140_100))
    folder = _folder(tmp_path)
    counting = Counting(reads_of(store), tmp_path / "asked")
    view = counting.view(store.streams.get(SOURCE).id)
    # One segment has more events than a range that is shared.
    (most, other) = sorted(_whole(view), key=lambda each: -each.events)
    shared = SharedReads(counting, folder)
    assert _read(shared, view, [most]).num_rows == most.events
    assert (not list(folder.glob("*.arrow"))) == (most.events > 128 * 1024)
    some = pa.schema([SCHEMA.field("device")])
    small = [other._replace(start=other.stop - 50)]
    assert _read(shared, view, small).num_rows == 50
    assert sum(batch.num_rows for batch in shared.rows(view, small, some)) == 50
    assert len(counting.asked()) == 3


def test_pieces_go_when_they_are_old_and_a_missing_folder_does_no_harm(store: ab.Store, tmp_path: Path) -> None:
    put(store, range(100))
    folder = _folder(tmp_path)
    reads = SharedReads(reads_of(store), folder)
    view = reads.view(store.streams.get(SOURCE).id)
    first = _read(reads, view, _whole(view))
    for piece in folder.glob("*.arrow"):
        os.utime(piece, (0, 0))
    put(store, range(100, 200))
    later = reads.view(view.info.id)
    ranges = [each._replace(start=view.length(each.segment)) for each in _whole(later)]
    _read(reads, later, [each for each in ranges if each.events])
    assert {int(piece.name.split("-")[2]) for piece in folder.glob("*.arrow")} == {each.start for each in ranges}
    for left in folder.iterdir():
        left.unlink()
    folder.rmdir()
    assert first.num_rows == 100 and _read(reads, later, _whole(later)).num_rows == 200


def test_truncated_events_are_still_an_error(store: ab.Store, tmp_path: Path) -> None:
    put(store, range(100))
    reads = SharedReads(reads_of(store), _folder(tmp_path))
    view = reads.view(store.streams.get(SOURCE).id)
    store.streams.truncate(SOURCE, store.cuts.tail(SOURCE))
    with pytest.raises(Truncated):
        _read(reads, view, _whole(view))


def test_a_stream_has_a_folder_while_two_queries_read_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANABRANCH_SHARED_READS", str(tmp_path))
    one, two = StreamId(71), StreamId(72)
    shared_streams.start_reading([one, two])
    assert shared_streams.shared_folder(one) is None
    shared_streams.start_reading([one])
    folder = shared_streams.shared_folder(one)
    assert folder is not None and folder.is_dir() and shared_streams.shared_folder(two) is None
    (folder / "piece").touch()
    shared_streams.stop_reading([one])
    assert shared_streams.shared_folder(one) is None and not folder.exists()
    shared_streams.stop_reading([one, two])


def test_without_a_folder_of_the_driver_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANABRANCH_SHARED_READS", raising=False)
    shared_streams.start_reading([StreamId(73), StreamId(73)])
    assert shared_streams.shared_folder(StreamId(73)) is None
    shared_streams.stop_reading([StreamId(73), StreamId(73)])


@pytest.mark.spark
@pytest.mark.slow
def test_the_statements_of_a_pipeline_share_what_they_read(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(200))
    stream = store.streams.get(SOURCE).id
    sql = COUNTS + "; CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"
    with run(store, sql, name="both", spark=spark) as pipeline:
        folder = shared_streams.shared_folder(stream)
        assert folder is not None
        for number in range(1, 5):
            put(store, range(number * 200, number * 200 + 200))
            until(lambda number=number: len(rows(store, "out/copy")) == number * 200 + 200)  # type: ignore[misc]
        until(lambda: sum(counted(store).values()) == sum(expected(store, until=994).values()))
        assert counted(store) == expected(store, until=994)
        pieces = [tuple(map(int, piece.stem.split("-")[2:])) for piece in folder.glob("*.arrow")]
        assert sum(stop - start for start, stop in pieces) == 1_000, pieces
        assert pipeline.active
    assert not folder.exists()


def test_a_reader_does_not_wait_for_one_that_was_stopped(
    store: ab.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reads, "_LOCK_S", 0.1)
    put(store, range(100))
    folder = _folder(tmp_path)
    reads = SharedReads(reads_of(store), folder)
    view = reads.view(store.streams.get(SOURCE).id)
    _read(reads, view, _whole(view))
    for piece in folder.glob("*.arrow"):
        piece.unlink()
    with ExitStack() as held:
        for lock in folder.glob("*.lock"):
            fcntl.flock(held.enter_context(open(lock, "wb")), fcntl.LOCK_EX)
        assert _read(reads, view, _whole(view)).num_rows == 100
    assert not list(folder.glob("*.arrow"))
