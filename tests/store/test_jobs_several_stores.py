"""Stitches of sources that live in several stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import Conflict, FormatTooNew, InvalidArgument
from anabranch.store import Store
from anabranch.streams.jobs import run as running
from anabranch.streams.jobs.row import JobRow, State
from anabranch.streams.jobs.sources import Source
from tests.store.helpers import bodies_of, sound
from tests.store.jobs_kit import SCHEMA, fill, opened

Three = tuple[Store, Store, Store]


pytestmark = pytest.mark.usefixtures("many_ranges")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    """Two stores with a stream each, and a third with one, that others are to come into."""
    with (
        opened("folder", tmp_path / "a") as one,
        opened("folder", tmp_path / "b") as other,
        opened("folder", tmp_path / "c") as target,
    ):
        for store, first in ((one, 0), (other, 100), (target, 200)):
            store.streams.create_scope("s")
            store.streams.create("s/x", schema=SCHEMA, key="device", time="at")
            fill(store, "s/x", first, first + 60)
        other.compact(force=True)
        yield one, other, target


def numbers(store: Store, name: str) -> list[int]:
    return [body["n"] for body in bodies_of(store, name)]


def there(*stores: Store) -> list[bool]:
    return [store.streams.exists("s/x") for store in stores]


def test_streams_of_several_stores_are_stitched_in_their_order(three: Three) -> None:
    one, other, target = three
    end = other.streams.cut_after("s/x", other.streams.head("s/x"), events=10)
    head = ab.StreamRange("s/x", end=end)
    sources: list[Source | ab.InStore] = [
        ab.InStore(other, head),
        "s/x",
        ab.InStore(one, "s/x"),
        ab.InStore(other, "s/x"),
    ]
    joined = target.streams.stitch(sources, into="s/all", request="r")
    assert numbers(target, "s/all") == [*range(100, 110), *range(200, 260), *range(60), *range(100, 160)]
    assert target.streams.stitch(sources, into="s/all", request="r") == joined
    assert [stream for stream, _ in joined.parts] == [
        store.streams.get("s/x").id for store in (other, target, one, other)
    ]
    (origin,) = target.streams.lineage("s/all")
    assert [part.place for part in origin.parts] == [other.url, None, one.url, other.url]
    assert there(*three) == [True, True, True]
    assert sound(target)


def test_repeats_are_left_out_across_stores(three: Three) -> None:
    one, other, target = three
    fill(one, "s/x", 130, 180)
    sources = [ab.InStore(one, "s/x"), ab.InStore(other, "s/x")]
    joined = target.streams.stitch(sources, into="s/all", deduplicate=["n"], prefer=[1])
    assert joined.repeats == 30
    assert numbers(target, "s/all") == [*range(60), *range(160, 180), *range(100, 160)]


def test_the_sources_of_all_stores_are_given_up_or_none(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, target = three
    sources: list[Source | ab.InStore] = ["s/x", ab.InStore(one, "s/x"), ab.InStore(other, "s/x")]
    job = target.jobs.stitch(target, sources, "s/all", keep_sources=False)
    fill(other, "s/x", 160, 165)
    with pytest.raises(Conflict, match=r"'s/x' holds 5 event\(s\)"):
        job.wait(60)
    assert there(*three) == [True, True, True]
    other.streams.truncate("s/x", other.streams.tail("s/x"))  # nothing is left that would be lost

    real = running.give_up_sources

    def interrupted(txn: object, row: JobRow, store: int, now: object) -> None:
        if store == 2:
            raise KeyboardInterrupt
        real(txn, row, store, now)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(running, "give_up_sources", interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.jobs.resume(job.id).wait(60)
    assert there(*three) == [False, True, False]
    with pytest.raises(InvalidArgument, match="reads 2 other store"):
        target.jobs.resume(job.id, source=one)
    target.jobs.resume(job.id, source=[one, other]).wait(60)
    assert there(*three) == [False, False, False]
    assert numbers(target, "s/all") == [*range(200, 260), *range(60), *range(100, 160)]
    assert job.row().state is State.DONE
    assert all(map(sound, three))


def test_an_older_release_leaves_a_job_of_several_stores_alone(three: Three) -> None:
    """It knows of one source store, and would look for all in it."""
    one, _, target = three
    row = target.jobs.stitch(target, ["s/x", ab.InStore(one, "s/x")], "s/all").row()
    piece = row.to_piece()
    assert piece.value["format"] == 3
    assert JobRow.from_piece(piece) == row
    assert target.jobs.copy(one, "s/x", "s/y").row().to_piece().value["format"] == 1
    with pytest.raises(FormatTooNew):
        JobRow.from_piece(replace(piece, value={**piece.value, "format": 4}))
