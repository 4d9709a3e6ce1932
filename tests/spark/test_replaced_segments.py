"""Spark's tasks read segments that a replacement of a time range removed after the ranges were planned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import Truncated
from anabranch.log.read import Selection
from anabranch.spark.source.scan import ScanRange, read_rows
from tests.store.reading.kit import SCHEMA, T0, create, write

SEGMENT = ab.SegmentId(0, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", settings=ab.Settings(inline_bytes_max=0), create=True) as store:
        store.scopes.create("s")
        create(store)
        write(store, 0, 500)
        yield store


@pytest.mark.parametrize("first", [0, 100])
def test_a_removed_segment_is_skipped_only_where_data_loss_is_accepted(store: ab.Store, first: int) -> None:
    planned = store.streams.view("s/a")
    store.streams.replace("s/a", between=(T0, T0 + 10), with_=None)
    assert SEGMENT not in store.streams.view("s/a").segments
    ranges, selection = [ScanRange(SEGMENT, first, 500)], Selection(SCHEMA)
    assert list(read_rows(store, planned, ranges, selection, lossy=True)) == []
    with pytest.raises(Truncated):
        list(read_rows(store, planned, ranges, selection))
