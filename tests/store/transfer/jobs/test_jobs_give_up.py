"""Stitches into another store that give their sources up: all of them, behind the target, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import Conflict
from anabranch.store import Store
from anabranch.transfer.jobs import transfer_run as running
from anabranch.transfer.jobs.control import RunControl
from anabranch.transfer.jobs.record import JobState
from tests.store.helpers import bodies_of, sound
from tests.store.transfer.jobs.kit import SCHEMA, fill, live, opened


@pytest.fixture(params=["folder", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with opened(request.param, tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        prepared(source, target)
        yield source, target


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        prepared(source, target)
        yield source, target


def prepared(source: Store, target: Store) -> None:
    live(source)
    source.streams.create("s/b", schema=SCHEMA, key="device", time="at")
    fill(source, "s/b", 440, 480)
    target.scopes.create("t")


def names(store: Store) -> list[str]:
    return [str(info.name) for info in store.streams.list(internal=True)]


def stitch(source: Store, target: Store, **options: Any) -> ab.Joined:
    return source.streams.stitch(["s/a", "s/b"], into="t/all", to=target, keep_sources=False, **options)


def test_the_sources_go_when_the_target_is_there(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.aliases.add("s/a", "s/also")
    joined = stitch(source, target, request="r")
    assert sorted(body["n"] for body in bodies_of(target, "t/all")) == [*range(60, 480)]
    assert names(source) == [] and source.aliases.of() == {}
    assert target.jobs.list()[0].state is JobState.DONE
    assert sound(source) and sound(target)
    assert joined.stream == target.streams.get("t/all").id


def test_a_source_that_was_written_to_meanwhile_keeps_all_of_them(pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.stitch(source, ["s/a", "s/b"], "t/all", keep_sources=False)
    fill(source, "s/b", 480, 490)
    with pytest.raises(Conflict, match=r"'s/b' has 10 event\(s\).*not in 't/all'"):
        job.wait(60)
    assert job.row().state is JobState.FAILED and job.row().result is not None
    assert names(source) == ["s/a", "s/b"]
    assert len(bodies_of(target, "t/all")) == 420
    source.streams.truncate("s/b", source.cuts.tail("s/b"))  # nothing is left that would be lost
    target.jobs.resume(job.id, source=source).wait(60)
    assert names(source) == [] and names(target) == ["t/all"]
    assert sound(source) and sound(target)


def test_it_is_cancelled_with_what_is_there(folders: tuple[Store, Store]) -> None:
    source, target = folders
    job = target.jobs.stitch(source, ["s/a", "s/b"], "t/all", keep_sources=False)
    fill(source, "s/a", 480, 490)
    with pytest.raises(Conflict):
        job.wait(60)
    assert job.cancel().state is JobState.CANCELLED
    assert names(source) == ["s/a", "s/b"] and names(target) == ["t/all"]
    assert sound(source) and sound(target)


def test_of_a_range_with_an_end_the_whole_source_goes(folders: tuple[Store, Store]) -> None:
    source, target = folders
    end = source.cuts.after("s/a", source.cuts.head("s/a"), events=100)
    part = ab.StreamRange("s/a", end=end)
    source.streams.stitch([part, "s/b"], into="t/all", to=target, keep_sources=False)
    assert len(bodies_of(target, "t/all")) == 140
    assert names(source) == []
    assert sound(target)


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_interrupted_behind_the_target_is_resumed(
    folders: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    source, target = folders

    def interrupted(*_: Any, **__: Any) -> Any:
        raise OSError("the power is gone")

    # Before the transaction of the source, or behind it and before that of the job.
    if gone:
        monkeypatch.setattr(RunControl, "end", interrupted)
    else:
        monkeypatch.setattr(running, "delete_sources", interrupted)
    job = target.jobs.stitch(source, ["s/a", "s/b"], "t/all", keep_sources=False, request="r")
    with pytest.raises(OSError, match="power"):
        job.wait(60)
    row = job.row()
    assert row.state is JobState.FAILED and row.gives_up and row.result is not None
    assert names(source) == ([] if gone else ["s/a", "s/b"])
    assert len(bodies_of(target, "t/all")) == 420
    monkeypatch.undo()
    if gone:
        source.streams.create("s/a")
    again = target.jobs.resume(job.id, source=source).wait(60)
    assert again.stream == target.streams.get("t/all").id
    assert names(source) == (["s/a"] if gone else [])  # a new stream of an old name is another one
    assert sound(source) and sound(target)
