"""Stitches of sources that live in several stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.state.job import FORMAT, JOB
from anabranch.errors import Conflict, FormatTooNew, InvalidArgument
from anabranch.store import Store
from anabranch.transfer.jobs import transfer_run as running
from anabranch.transfer.jobs.delete_sources import delete_sources
from anabranch.transfer.jobs.record import JobRow, JobState
from anabranch.transfer.jobs.sources import Source
from tests.store.helpers import bodies_of, sound
from tests.store.transfer.jobs.kit import SCHEMA, fill, opened

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
            store.scopes.create("s")
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
    end = other.cuts.after("s/x", other.cuts.head("s/x"), events=10)
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
    (origin,) = target.lineage.origins("s/all")
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
    with pytest.raises(Conflict, match=r"'s/x' has 5 event\(s\)"):
        job.wait(60)
    assert there(*three) == [True, True, True]
    other.streams.truncate("s/x", other.cuts.tail("s/x"))  # nothing is left that would be lost

    def interrupted(txn: object, row: JobRow, store: int, now: object) -> None:
        if store == 2:
            raise KeyboardInterrupt
        delete_sources(txn, row, store, now)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(running, "delete_sources", interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.jobs.resume(job.id).wait(60)
    assert there(*three) == [False, True, False]
    with pytest.raises(InvalidArgument, match="reads 2 other store"):
        target.jobs.resume(job.id, source=one)
    target.jobs.resume(job.id, source=[one, other]).wait(60)
    assert there(*three) == [False, False, False]
    assert numbers(target, "s/all") == [*range(200, 260), *range(60), *range(100, 160)]
    assert job.row().state is JobState.DONE
    assert all(map(sound, three))


def test_an_older_release_leaves_a_job_that_a_later_one_wrote_alone(three: Three) -> None:
    one, _, target = three
    row = target.jobs.stitch(target, ["s/x", ab.InStore(one, "s/x")], "s/all").row()
    entry = JOB.entry(row.id, row)
    assert json.loads(entry.value)["format"] == FORMAT
    assert JOB.decode(entry) == (row.id, row)
    later = json.dumps({**json.loads(entry.value), "format": FORMAT + 1})
    with pytest.raises(FormatTooNew):
        JOB.decode(entry._replace(value=later))
