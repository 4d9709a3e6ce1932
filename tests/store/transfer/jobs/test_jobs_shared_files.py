"""Files that many segments share go into another store once, without their rows being decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.store import Store
from anabranch.transfer.jobs import parquet_files as files
from tests.store.helpers import HookedBlobs, sound
from tests.store.transfer.jobs.kit import SCHEMA, fill, image, opened


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        source.scopes.create("s")
        source.streams.create("s/a", schema=SCHEMA, key="device", time="at", scaling=6)
        fill(source, "s/a", 0, 400)
        source.streams.create("s/other", schema=SCHEMA, key="device", time="at", scaling=3)
        fill(source, "s/other", 1_000, 1_400)
        source.compact(force=True)
        target.scopes.create("t")
        yield source, target


def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("rows were decoded")

    monkeypatch.setattr(files, "ParquetBuilder", refused)


def stored(store: Store) -> list[int]:
    """The sizes of its tier-2 files."""
    return [info.size for info in store.blobs.list("history/")]


def test_what_is_wanted_of_a_shared_file_is_moved_as_it_is(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    (shared,) = stored(source)  # of nine logs
    undecoded(monkeypatch)
    reads: list[str] = []

    class Reading(HookedBlobs):
        def get(self, key: str, offset: int = 0, length: int | None = None) -> Any:
            reads.append(key)
            return super().get(key, offset, length)

    source.blobs = Reading(source.blobs)
    source.jobs._job_store = source.job_store
    source.streams.copy("s/a", "t/b", to=target)
    (moved,) = stored(target)
    assert moved < 0.8 * shared  # the other stream's rows stayed behind
    assert len(reads) == 1  # it was read once for all segments
    assert image(target, "t/b") == image(source, "s/a")
    source.streams.copy("s/other", "t/c", to=target)
    assert sum(stored(target)) < 1.3 * shared
    assert image(target, "t/c") == image(source, "s/other")
    assert source.archives.digest("s/a") == target.archives.digest("t/b")
    assert sound(target)


def test_what_follows_the_files_is_moved_behind_them(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    fill(source, "s/a", 400, 500)
    source.streams.scale("s/a", 3)
    fill(source, "s/a", 500, 600)
    undecoded(monkeypatch)
    source.streams.copy("s/a", "t/b", to=target)
    assert len(stored(target)) == 1
    assert image(target, "t/b") == image(source, "s/a")
    target.streams.scale("t/b", 2)
    target.compact(force=True)
    assert image(target, "t/b")["events"] == image(source, "s/a")["events"]
    assert sound(target)


def test_a_range_that_cuts_row_groups_is_written_anew(pair: tuple[Store, Store]) -> None:
    source, target = pair
    streams = source.streams
    cut = source.cuts.after("s/a", source.cuts.head("s/a"), events=50)
    streams.copy(ab.StreamRange("s/a", start=cut), "t/b", to=target)
    with target.reader("t/b") as reader, source.reader("s/a", start=cut) as expected:
        assert [event.body for event in reader] == [event.body for event in expected]
    assert sound(target)


def test_small_bundles_take_their_part_of_a_file_each(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    monkeypatch.setattr(limits, "JOB_BUNDLE_RANGES_MAX", 2)
    undecoded(monkeypatch)
    source.streams.copy("s/a", "t/b", to=target)
    assert len(stored(target)) == 3
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)
