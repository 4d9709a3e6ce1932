"""Copies that follow their source: every event once, at its offset, through scales, new columns and restarts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Conflict, InvalidArgument, JobStopped, StreamExists, Truncated
from anabranch.model.stream_range import StreamRange
from anabranch.store import Store
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.record import JobState
from tests.store.helpers import bodies_of, sound
from tests.store.transfer.jobs.kit import SETTINGS, WIDER, fill, image, live, opened
from tests.waiting import PATIENCE_S, until, until_ended

pytestmark = pytest.mark.usefixtures("many_ranges")


def caught_up(job: Job, source: Store, target: Store, name: str) -> bool:
    """True once the copy holds as many events as the source."""
    if job.row().result is None:
        return False
    one, other = source.streams.view("s/a"), target.streams.view(name)
    return [one.length(s.id) for s in one.ordered] == [other.length(s.id) for s in other.ordered]


def last_scaling(store: Store, name: str) -> dict[str, Any]:
    """What is told of it."""
    return dict([each.detail for each in store.notifications.read(name) if each.kind == "scaled"][-1])


@pytest.mark.parametrize("kind", ["across", "within", "independent", "postgres"])
def test_a_copy_follows_its_source_through_scales_and_new_columns(kind: str, tmp_path: Path) -> None:
    with (
        opened("folder", tmp_path / "a") as source,
        opened("postgres" if kind == "postgres" else "folder", tmp_path / "b") as other,
    ):
        live(source)
        target = source if kind in ("within", "independent") else other
        target.scopes.create("t")
        job = target.jobs.copy(source, "s/a", "t/b", follow=True, independent=kind != "within")
        fill(source, "s/a", 440, 480)
        source.streams.scale("s/a", 4)
        fill(source, "s/a", 480, 520)
        source.streams.evolve("s/a", WIDER.append(pa.field("more", pa.string())))
        source.streams.append("s/a", "s/a")
        fill(source, "s/a", 520, 560, more="much")
        source.compact(force=True)
        source.streams.scale("s/a", 1)
        until(lambda: caught_up(job, source, target, "t/b"))
        assert image(target, "t/b") == image(source, "s/a")
        assert last_scaling(target, "t/b") == last_scaling(source, "s/a")
        until(lambda: job.row().lag == 0)
        job.pause()
        assert sound(target)
        with target.writer("t/b") as writer:  # it is a stream like any other now
            writer.write({"device": "d1", "n": 1}).result()
        assert sound(target)


def test_a_copy_that_was_paused_follows_on_from_where_it_was(tmp_path: Path, pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.copy(source, "s/a", "t/b", follow=True)
    for n in range(4):
        fill(source, "s/a", 440 + 40 * n, 480 + 40 * n)
        if n % 2:
            source.streams.scale("s/a", 1 + n)
        job.pause()
        with pytest.raises(JobStopped, match="paused"):
            job.wait()
        with ab.connect(tmp_path / "b", settings=SETTINGS, create=True) as again:
            again.jobs.resume(job.id, source=source)  # closing the store pauses it at once
        job = target.jobs.resume(job.id, source=source)
    until(lambda: caught_up(job, source, target, "t/b"))
    assert image(target, "t/b") == image(source, "s/a")
    assert job.row().followed == 160
    assert sound(target)


def test_following_ends_when_nothing_came_for_a_while(pair: tuple[Store, Store]) -> None:
    source, target = pair
    copied = source.streams.copy("s/a", "t/b", to=target, follow=Until(idle_s=0.1))
    assert copied.source == source.streams.get("s/a").id
    assert target.jobs.list()[0].state is JobState.DONE
    with pytest.raises(StreamExists):  # whether it is what it was, nobody knows any more
        source.streams.copy("s/a", "t/b", to=target, follow=True)


def test_following_ends_after_a_time_and_after_so_many_events(pair: tuple[Store, Store]) -> None:
    source, target = pair
    source.streams.copy("s/a", "t/soon", to=target, follow=Until(for_s=0.05))
    before = len(bodies_of(source, "s/a"))
    job = target.jobs.copy(source, "s/a", "t/some", follow=Until(events=25))
    until(lambda: job.row().result is not None)
    fill(source, "s/a", 440, 500)
    job.wait()
    assert len(bodies_of(target, "t/some")) == before + 25 == before + job.row().followed
    assert sound(target)
    with pytest.raises(InvalidArgument):
        Until(idle_s=-1)


def test_following_ends_with_a_sealed_source(pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.copy(source, "s/a", "t/b", follow=True)
    fill(source, "s/a", 440, 480)
    source.streams.seal("s/a")
    job.wait(PATIENCE_S)
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)


def test_somebody_elses_write_to_the_copy_is_noticed(pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.copy(source, "s/a", "t/b", follow=True)
    until(lambda: caught_up(job, source, target, "t/b"))
    with target.writer("t/b") as writer:
        for n in range(9):
            writer.write({"device": f"d{n}", "n": -1}).result()
    fill(source, "s/a", 440, 540)
    with pytest.raises(Conflict, match="written to by another client"):
        job.wait(PATIENCE_S)
    assert job.row().state is JobState.FAILED


def test_what_a_source_truncates_before_it_was_copied_is_reported(pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.copy(source, "s/a", "t/b", follow=True)
    until(lambda: caught_up(job, source, target, "t/b"))
    job.pause()
    fill(source, "s/a", 440, 540)
    source.streams.truncate("s/a", source.cuts.tail("s/a"))
    fill(source, "s/a", 540, 560)
    with pytest.raises(Truncated):
        target.jobs.resume(job.id, source=source).wait(PATIENCE_S)


def test_a_range_with_an_end_is_not_followed(pair: tuple[Store, Store]) -> None:
    source, target = pair
    with pytest.raises(InvalidArgument, match="has no end"):
        target.jobs.copy(source, StreamRange("s/a", end=source.cuts.tail("s/a")), "t/b", follow=True)


def test_a_writer_beside_it_is_copied_event_for_event(pair: tuple[Store, Store]) -> None:
    source, target = pair
    job = target.jobs.copy(source, "s/a", "t/b", follow=True, window=3)

    def write() -> None:
        for n in range(10):
            fill(source, "s/a", 440 + 20 * n, 460 + 20 * n)
            source.streams.scale("s/a", 1 + n % 3)

    writing = threading.Thread(target=write)
    writing.start()
    until_ended(writing)
    source.streams.seal("s/a")
    job.wait(PATIENCE_S)
    assert image(target, "t/b") == image(source, "s/a")
    assert sound(target)
