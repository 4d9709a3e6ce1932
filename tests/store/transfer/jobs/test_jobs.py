"""Jobs: copies, appends and stitches from one store to another, and copies with bytes of their own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import (
    InvalidArgument,
    SchemaMismatch,
    StreamExists,
    StreamNotFound,
    Truncated,
)
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import MasterKeys
from anabranch.store import Store
from anabranch.transfer.jobs.record import JobState
from tests.store.helpers import bodies_of, sound
from tests.store.transfer.jobs.kit import SCHEMA, Gate, fill, image, live, opened

KEYS = MasterKeys({"k": bytes(range(32))}, SystemIds())


pytestmark = pytest.mark.usefixtures("many_ranges")


# what a copy is


@pytest.mark.parametrize("places", ["folder folder", "folder postgres", "postgres folder", "folder s3", "s3 memory"])
def test_a_copy_in_another_store_is_event_for_event_its_source(places: str, tmp_path: Path) -> None:
    first, second = places.split()
    with opened(first, tmp_path / "a") as source, opened(second, tmp_path / "b") as target:
        live(source)
        target.scopes.create("t")
        copied = source.streams.copy("s/a", "t/b", to=target)
        assert image(target, "t/b") == image(source, "s/a")
        with source.reader("s/a") as reader:
            for event in list(reader)[::25]:
                assert target.fetch(copied.pointer(event.pointer)).body == event.body
        assert sound(target)
        assert [info.name.name for info in target.streams.list(internal=True)] == ["b"]
        assert target.jobs.list()[0].state is JobState.DONE
        with target.writer("t/b") as writer:
            writer.write({"device": "d1", "n": 1}).result()
        for _ in range(2):
            target.compact(force=True)
            target.collect(horizon_us=0)
        assert sound(target)
        assert len(bodies_of(target, "t/b")) == len(bodies_of(source, "s/a")) + 1


@pytest.mark.parametrize("sealed", ["source", "target", "both"])
def test_bytes_are_sealed_anew_where_a_store_is_encrypted(sealed: str, tmp_path: Path) -> None:
    with (
        opened("folder", tmp_path / "a", keys=KEYS if sealed != "target" else None) as source,
        opened("folder", tmp_path / "b", keys=KEYS if sealed != "source" else None) as target,
    ):
        live(source)
        target.scopes.create("t")
        source.streams.copy("s/a", "t/b", to=target)
        assert image(target, "t/b") == image(source, "s/a")
        assert sound(target)


def test_a_copy_of_a_stitched_stream_has_the_columns_of_all(tmp_path: Path) -> None:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        narrow = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
        source.streams.create("s/narrow", schema=narrow, key="device", time="at")
        fill(source, "s/narrow", 1_000, 1_030)
        source.streams.stitch(["s/narrow", "s/a", "s/narrow"], into="s/all")
        source.streams.copy("s/all", "s/again")
        target.scopes.create("t")
        source.streams.copy("s/again", "t/b", to=target)
        assert image(target, "t/b") == image(source, "s/again")
        assert sound(target)


def test_a_range_of_a_stream_is_copied_with_the_same_offsets(pair: tuple[Store, Store]) -> None:
    source, target = pair
    head = source.cuts.head("s/a")
    start = ab.StreamCut.of(head.stream, {segment: offset + 5 for segment, offset in head})
    end = source.cuts.tail("s/a")
    fill(source, "s/a", 440, 470)
    part = StreamRange("s/a", start, end)
    copied = source.streams.copy(part, "t/b", to=target)
    source.streams.copy(part, "s/part")
    assert image(target, "t/b") == image(source, "s/part")
    assert copied.cut(end).stream == target.streams.get("t/b").id
    assert sound(target)


@pytest.mark.parametrize("empty", [True, False])
def test_a_copy_of_a_sealed_or_empty_stream_can_be_written_to(empty: bool, pair: tuple[Store, Store]) -> None:
    source, target = pair
    if empty:
        source.streams.create("s/none", scaling=2)
        source.streams.copy("s/none", "t/b", to=target)
    else:
        source.streams.seal("s/a")
        source.streams.copy("s/a", "t/b", to=target)
    before = len(bodies_of(target, "t/b"))
    with target.writer("t/b") as writer:
        writer.write(b"x" if empty else {"device": "d", "n": 1}).result()
    assert len(bodies_of(target, "t/b")) == before + 1
    assert sound(target)


def test_a_copy_outlives_its_source_and_its_source_the_copy(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.copy("s/a", "t/b", to=target)
    source.streams.copy("s/a", "s/own", independent=True)
    whole = image(source, "s/a")
    source.streams.delete("s/a")
    for store, name in ((source, "s/own"), (target, "t/b")):
        for _ in range(3):
            store.collect(horizon_us=0)
        assert image(store, name) == whole
        assert sound(store)


def test_an_independent_copy_shares_no_blob_with_its_source(pair: tuple[Store, Store]) -> None:
    source, _ = pair
    source.streams.copy("s/a", "s/own", independent=True)
    assert image(source, "s/own") == image(source, "s/a")

    def blobs(name: str) -> set[str | None]:
        view = source.streams.view(name)
        with source.catalog.reading() as reading:
            return {each.key for log in view.logs for each in reading.extents(log, 0, 1 << 40, 10_000) if each.key}

    assert blobs("s/own")
    assert not blobs("s/own") & blobs("s/a")
    with pytest.raises(StreamExists):
        source.streams.copy("s/a", "s/own")  # this one would share them
    assert sound(source)


def test_whole_parquet_files_keep_their_pages(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.create("s/big", schema=SCHEMA, key="device", time="at")
    fill(source, "s/big", 0, 500)
    source.compact("s/big", force=True)
    source.streams.copy("s/big", "t/b", to=target)

    def file(store: Store, name: str) -> tuple[ab.model.stream.Extent, bytes]:
        log = store.streams.view(name).spans[ab.SegmentId(0, 0)][0].log
        with store.catalog.reading() as reading:
            (extent,) = reading.extents(log, 0, 1 << 40, 10)
        assert extent.encoding == "parquet"
        return extent, store.blobs.get(str(extent.key)).to_pybytes()

    (old, before), (new, after) = file(source, "s/big"), file(target, "t/b")
    pages = len(before) - 8 - int.from_bytes(before[-8:-4], "little")
    assert before[:pages] == after[:pages]
    assert (old.start, old.stop, old.appended, old.events, old.size_end) == (
        new.start, new.stop, new.appended, new.events, new.size_end,
    )  # fmt: skip
    assert sound(target)


def test_imported_and_attached_files_are_copied_too(pair: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = pair
    source.archives.create("s/a", tmp_path / "archive")
    source.archives.import_(tmp_path / "archive", as_="s/imported")
    source.archives.attach(tmp_path / "archive", "s/attached")
    plain = pa.table({"device": ["a", "b", "c"], "n": [1, 2, 3]})
    (tmp_path / "plain").mkdir()
    pq.write_table(plain, tmp_path / "plain" / "1.parquet")
    source.archives.attach(tmp_path / "plain", "s/plain", key="device")
    for name in ("imported", "attached", "plain"):
        source.streams.copy(f"s/{name}", f"t/{name}", to=target)
        assert image(target, f"t/{name}") == image(source, f"s/{name}")
    assert image(target, "t/attached")["events"] == image(source, "s/a")["events"]
    assert sound(target)


# appends and stitches


def test_an_append_lets_another_stores_events_follow_at_once(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.copy("s/a", "t/b", to=target)
    with target.writer("t/b") as writer:
        joined = source.streams.append("s/a", "t/b", to=target)
        writer.write({"device": "d1", "n": -1}).result()
    bodies = bodies_of(source, "s/a")
    assert sorted(map(str, bodies_of(target, "t/b"))) == sorted(
        map(str, [*bodies, *bodies, *bodies_of(target, "t/b")[-1:]])
    )
    with source.reader("s/a") as reader:
        for event in list(reader)[::25]:
            (moved,) = joined.pointers(event.pointer)
            assert target.fetch(moved).body == event.body
    assert [info.name.name for info in target.streams.list(internal=True)] == ["b"]
    assert sound(target)


def test_a_stitch_of_another_stores_streams_has_them_in_order(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.create("s/more", schema=SCHEMA, key="device", time="at")
    fill(source, "s/more", 1_000, 1_050)
    source.streams.stitch(["s/more", "s/a", "s/more"], into="s/here")
    source.streams.stitch(["s/more", "s/a", "s/more"], into="t/there", to=target)
    here, there = image(source, "s/here"), image(target, "t/there")
    assert list(here["events"].items()) == list(there["events"].items())
    assert here["segments"] == there["segments"]
    assert sound(target)


def test_what_a_job_made_shows_where_it_came_from(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.copy("s/a", "s/b")
    source.streams.copy("s/b", "t/b", to=target)
    source.streams.append("s/b", "t/b", to=target)
    source.streams.stitch(["s/a", "s/b"], into="t/c", to=target)
    source.streams.delete("s/b")
    copied, appended = target.lineage.origins("t/b")
    assert [(part.name, part.place) for part in copied.parts] == [("s/b", source.url)]
    assert copied.parts[0].ancestors[0].name == "s/a"
    assert (appended.how, appended.parts[0].name, appended.parts[0].events) == ("appended", "s/b", 380)
    (stitched,) = target.lineage.origins("t/c")
    assert [part.name for part in stitched.parts] == ["s/a", "s/b"]


# refusals


def test_what_can_not_be_copied_is_refused_before_anything_is_moved(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.create("s/raw")
    target.streams.create("t/other")
    for call, error in (
        (lambda: source.streams.copy("s/none", "t/b", to=target), StreamNotFound),
        (lambda: source.streams.copy("s/a", "t/other", to=target), StreamExists),
        (lambda: source.streams.copy("s/a", "u/b", to=target), ab.errors.ScopeNotFound),
        (lambda: source.streams.append("s/a", "t/none", to=target), StreamNotFound),
        (lambda: source.streams.stitch([], into="t/b", to=target), InvalidArgument),
        (lambda: source.streams.append("s/a", "t/other", to=target), SchemaMismatch),
        (lambda: source.streams.stitch(["s/a", "s/raw"], into="t/b", to=target), SchemaMismatch),
    ):
        with pytest.raises(error):
            call()
    assert target.jobs.list() == []
    assert [info.name.name for info in target.streams.list(internal=True)] == ["other"]


def test_a_source_that_was_truncated_meanwhile_fails_the_job_by_name(pair: tuple[Store, Store]) -> None:
    source, target = pair
    gate = Gate(target, 1)
    job = target.jobs.copy(source, "s/a", "t/b", window=1)
    gate.wait()
    source.streams.truncate("s/a", source.cuts.tail("s/a"))
    gate.open.set()
    with pytest.raises(Truncated):
        job.wait()
    assert job.row().state is JobState.FAILED
    assert not target.streams.exists("t/b")
