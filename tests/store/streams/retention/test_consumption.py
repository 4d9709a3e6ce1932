"""Retention by consumption: events go when all subscribed reader groups have read them, and groups that lag are passed at the
bound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import GroupNotFound, InvalidArgument, NotFound, Truncated
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.parameters import rest_is_slow
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import bodies_of, sound
from tests.store.kit import SECOND
from tests.waiting import until

HOUR = 3600 * SECOND


@dataclass
class Kept:
    """A store whose clock the test moves, with the stream s/a of two segments."""

    store: Store
    clock: ManualClock

    def write(self, *numbers: int, stream: str = "s/a") -> None:
        with self.store.writer(stream) as writer:
            for n in numbers:
                writer.write(str(n).encode(), key=f"k{n % 7}")

    def group(self, name: str, *, stream: str = "s/a", start: ab.StreamCut | None = None) -> ab.ReaderGroup:
        return self.store.groups.open(name, streams=[stream], start=ab.HEAD if start is None else start)

    def numbers(self, stream: str = "s/a") -> set[int]:
        return {int(body) for body in bodies_of(self.store, stream)}

    def retain(self) -> ab.Store:
        self.store.retain()
        return self.store

    def states(self) -> dict[str, str]:
        return {each.group: each.state for each in self.store.subscribers.list("s/a")}


def consume(group: ab.ReaderGroup, events: int | None = None) -> set[int]:
    """Read so many events, or all, and have them accepted."""
    found: set[int] = set()
    with group.reader("r", delivery="exactly_once", batch_rows=1) as reader:
        while (events is None or len(found) < events) and group.unread().events:
            if (batch := reader.read(0.1)) is not None:
                found |= {int(body) for body in batch.column("payload").to_pylist()}
                reader.commit()
    return found


@pytest.fixture(params=["memory", "postgres+memory"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    clock = ManualClock()
    url = fresh_url() if request.param == "postgres+memory" else "memory://"
    blobs = "memory://" if url != "memory://" else None
    with ab.connect(url, blobs=blobs, runtime=runtime_by(clock), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        yield Kept(store, clock)
        assert sound(store)
    if blobs:
        drop(url)


def test_events_are_removed_once_all_groups_have_read_them(kept: Kept) -> None:
    one, other = kept.group("s/one"), kept.group("s/other")
    assert kept.store.policies.retention("s/a", ab.RetainConsumed(["s/one", "s/other"])) is not None
    kept.write(*range(40))
    kept.retain()
    assert kept.numbers() == {*range(40)}  # nobody has begun
    first = consume(one)
    assert first == {*range(40)}
    kept.retain()
    assert kept.numbers() == {*range(40)}  # the other has not begun
    second = consume(other, 15)
    report = kept.store.retain("s/a")
    assert (report.events, report.passed) == (15, ())
    assert kept.numbers() == {*range(40)} - second
    assert kept.store.retain("s/a").truncated == 0
    assert consume(other) == {*range(40)} - second  # without a Truncated, or a hole
    kept.retain()
    assert kept.numbers() == set()


def test_concurrent_groups_keep_what_either_has_not_read(kept: Kept) -> None:
    """Their positions are incomparable: each is ahead in another segment."""
    kept.write(*range(60))
    view = kept.store.streams.view("s/a")
    one, other = (segment.id for segment in view.current)
    lengths = {segment.id: view.length(segment.id) for segment in view.current}
    assert min(lengths.values()) > 2
    kept.group("s/one", start=ab.StreamCut.of(view.info.id, {one: lengths[one], other: 1}))
    kept.group("s/other", start=ab.StreamCut.of(view.info.id, {one: 2, other: lengths[other]}))
    kept.store.policies.retention("s/a", ab.RetainConsumed(["s/one", "s/other"]))
    kept.store.streams.truncate("s/a", by="groups")
    assert kept.store.cuts.head("s/a").as_dict() == {one: 2, other: 1}


def test_a_group_that_lags_beyond_the_bound_loses_events_and_is_reported(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[ab.Notification] = []
    by_stream: list[ab.Notification] = []
    quick, slow = kept.group("s/quick"), kept.group("s/slow")
    slow.on_passed(told.append)
    quick.on_passed(told.append)
    kept.store.notifications.listen(by_stream.append, "s/a")
    kept.store.policies.retention("s/a", ab.RetainConsumed(["s/quick", "s/slow"], at_most=ab.RetainFor("5h")))
    kept.write(*range(10))
    kept.clock.pass_time(3 * HOUR)
    kept.write(*range(10, 20))
    assert consume(quick) == {*range(20)}
    read = consume(slow, 4)
    assert kept.store.retain("s/a").passed == ()
    kept.clock.pass_time(3 * HOUR)
    with caplog.at_level(logging.WARNING, logger="anabranch.streams"):
        report = kept.store.retain("s/a")
    assert kept.numbers() == {*range(10, 20)} - read
    lost = len({*range(10)} - read)
    assert lost
    (passed,) = report.passed
    assert (passed.stream, passed.group, passed.events) == ("s/a", "s/slow", lost)
    assert "'s/slow'" in caplog.text and f"{lost} events" in caplog.text
    state = {each.group: each for each in kept.store.subscribers.list("s/a")}
    assert (state["s/slow"].passed_events, state["s/slow"].passed_at) == (lost, kept.clock.now())
    assert (state["s/quick"].passed_events, state["s/quick"].passed_at) == (0, None)
    assert (state["s/slow"].events, state["s/quick"].events) == (len({*range(10, 20)} - read), 0)
    until(lambda: told and any(each.kind == "group passed" for each in by_stream))
    assert [(each.group, each.stream, each.detail["events"]) for each in told] == [("s/slow", "s/a", lost)]
    assert not kept.store.retain("s/a").passed  # reported once for what it lost
    reader = slow.reader("r", delivery="exactly_once")
    with pytest.raises(Truncated):  # noqa: PT012 - events of another segment may come first
        for _ in range(100):
            reader.read(0.1)
    reader.abandon()
    assert consume(slow) == {*range(10, 20)} - read


def test_a_bound_of_bytes_passes_a_group_as_well(kept: Kept) -> None:
    kept.group("s/slow")
    kept.write(*range(100))
    size = kept.store.cuts.distance("s/a").bytes
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/slow", at_most=ab.RetainBytes(size // 2)))
    (passed,) = kept.store.retain("s/a").passed
    assert 0 < passed.events < 100
    assert passed.bytes <= size // 2 + 1
    assert len(kept.numbers()) == 100 - passed.events


def test_minimum_bounds_are_kept_even_if_read(kept: Kept) -> None:
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g", age_min="2h"))
    kept.write(*range(10))
    kept.clock.pass_time(3 * HOUR)
    kept.write(*range(10, 20))
    consume(group)
    kept.retain()
    assert kept.numbers() == {*range(10, 20)}


def test_retention_waits_for_a_group_that_does_not_exist_yet(kept: Kept) -> None:
    kept.store.streams.create("s/b", scaling=2, retention=ab.RetainConsumed(["s/later"], at_most=ab.RetainFor("9h")))
    kept.write(*range(10), stream="s/b")
    assert kept.store.retain("s/b").truncated == 0
    assert [each.state for each in kept.store.subscribers.list("s/b")] == ["not created"]
    assert kept.store.subscribers.list("s/b")[0].events == 10
    later = kept.group("s/later", stream="s/b")
    assert len(consume(later, 4)) == 4
    kept.retain()
    assert [each.state for each in kept.store.subscribers.list("s/b")] == ["reading"]
    assert len(kept.numbers("s/b")) == 6
    assert len(consume(later)) == 6


def test_retention_ignores_a_deleted_group_until_it_is_created_again(kept: Kept) -> None:
    one, other = kept.group("s/one"), kept.group("s/other")
    kept.store.policies.retention("s/a", ab.RetainConsumed(["s/one", "s/other"]))
    kept.write(*range(20))
    consume(one)
    other.delete()
    assert kept.states() == {"s/one": "reading", "s/other": "deleted"}
    kept.retain()
    assert kept.numbers() == set()
    kept.write(*range(20, 40))
    again = kept.group("s/other")
    consume(one)
    assert kept.store.retain("s/a").truncated == 0
    assert kept.states() == {"s/one": "reading", "s/other": "reading"}
    assert consume(again) == {*range(20, 40)}
    one.delete()
    again.delete()
    kept.write(*range(40, 60))
    kept.retain()  # with nobody left, nothing counts as read
    assert kept.numbers() == {*range(20, 60)}


def test_retention_still_waits_for_a_renamed_group(kept: Kept) -> None:
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g"))
    kept.write(*range(10))
    kept.store.scopes.rename("s", "t")
    assert kept.store.policies.retention("t/a") == ab.RetainConsumed("t/g")
    assert [each.group for each in kept.store.subscribers.list("t/a")] == ["t/g"]
    assert kept.store.retain("t/a").truncated == 0
    read = consume(kept.store.groups.open("t/g"), 3)
    kept.retain()
    assert kept.numbers("t/a") == {*range(10)} - read
    with pytest.raises(GroupNotFound, match="t/g"):
        kept.store.policies.retention("t/a", ab.RetainConsumed("s/g"))
    kept.store.scopes.rename("t", "s")
    del group


def test_a_group_that_was_reset_keeps_what_it_reads_again(kept: Kept) -> None:
    group, other = kept.group("s/g"), kept.group("s/other")
    kept.store.policies.retention("s/a", ab.RetainConsumed(["s/g", "s/other"]))
    kept.write(*range(20))
    consume(group)
    gone = consume(other, 5)
    kept.retain()
    group.reset(ab.HEAD)
    consume(other)
    assert kept.store.retain("s/a").truncated == 0
    assert consume(group) == {*range(20)} - gone
    group.reset(ab.TAIL)
    kept.retain()
    assert kept.numbers() == set()


def test_a_group_of_other_streams_is_refused_or_keeps_nothing(kept: Kept) -> None:
    kept.store.streams.create("s/b")
    elsewhere = kept.group("s/elsewhere", stream="s/b")
    with pytest.raises(InvalidArgument, match="does not read 's/a'"):
        kept.store.policies.retention("s/a", ab.RetainConsumed("s/elsewhere"))
    both = kept.store.groups.open("s/both", streams=["s/a", "s/b"])
    reads = kept.group("s/reads")
    kept.store.policies.retention("s/a", ab.RetainConsumed(["s/both", "s/reads"]))
    kept.write(*range(10), stream="s/b")
    kept.write(*range(10))
    consume(reads)
    assert kept.store.retain("s/a").truncated == 0
    both.delete()
    kept.group("s/both", stream="s/b")
    assert kept.states() == {"s/both": "reads other streams", "s/reads": "reading"}
    kept.retain()
    assert kept.numbers() == set()
    assert kept.numbers("s/b") == {*range(10)}
    del elsewhere


def test_nothing_before_a_pending_checkpoint_is_removed(kept: Kept) -> None:
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g"))
    kept.write(*range(40))
    with group.reader("r1", batch_rows=1) as one, group.reader("r2", batch_rows=1) as other:
        until(lambda: len(one.segments) == len(other.segments) == 1)
        assert one.read(60) is not None
        with suppress(TimeoutError):
            group.checkpoint("c", timeout_s=0)
        until(lambda: one._membership.awaited_checkpoint is not None)
        assert one.read(60) is not None  # one comes to the checkpoint, the other does not ask for more
        pending = group._state().checkpoint
        assert pending is not None
        (gathered,) = pending.offsets.items()
        assert [one.read(60) is not None for _ in range(4)] == [True] * 4
        until(lambda: group._state().positions[gathered[0]] > gathered[1])
        kept.retain()
        assert sum(kept.store.cuts.head("s/a").as_dict().values()) == gathered[1]
        until(lambda: other._membership.awaited_checkpoint is not None)
        assert other.read(60) is not None
        done = group.checkpoint("c")
    kept.retain()
    left = 40 - sum(done.cut(gathered[0].stream).as_dict().values())
    assert len(kept.numbers()) < left  # once it is complete, it releases what was accepted behind it
    assert group.unread().events == len(kept.numbers())


def test_a_group_may_release_what_lies_before_its_last_checkpoint_alone(kept: Kept) -> None:
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g", release="checkpoint"))
    kept.write(*range(20))
    first = consume(group, 8)
    assert kept.store.retain("s/a").truncated == 0  # there is no checkpoint yet
    group.checkpoint("c1")
    consume(group, 5)
    kept.retain()
    assert kept.numbers() == {*range(20)} - first
    group.reset("c1")
    assert consume(group) == {*range(20)} - first
    group.checkpoint("c2")
    group.reset("c1")
    kept.retain()  # it went back behind the last checkpoint
    assert kept.numbers() == {*range(20)} - first


@pytest.mark.parametrize("segments", rest_is_slow([4, 1]))
def test_a_scaled_stream_stops_at_the_slowest_on_either_side_of_the_scale(kept: Kept, segments: int) -> None:
    one, other = kept.group("s/one"), kept.group("s/other")
    kept.store.policies.retention("s/a", ab.RetainConsumed(["s/one", "s/other"]))
    kept.write(*range(30))
    kept.store.streams.scale("s/a", segments)
    kept.write(*range(30, 60))
    assert consume(one) == {*range(60)}
    seen: set[int] = set()
    while group_unread := other.unread().events:
        assert group_unread == 60 - len(seen)
        seen |= consume(other, 9)
        kept.retain()
        assert kept.numbers() == {*range(60)} - seen


def test_a_copy_is_kept_whatever_the_groups_of_its_source_have_read(kept: Kept) -> None:
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g"))
    kept.write(*range(10))
    kept.store.streams.copy("s/a", "s/copy")
    consume(group)
    kept.retain()
    kept.store.collect(horizon_us=0)
    assert (kept.numbers(), kept.numbers("s/copy")) == (set(), {*range(10)})
    with pytest.raises(InvalidArgument, match="does not read"):
        kept.store.policies.retention("s/copy", ab.RetainConsumed("s/g"))
    of_copy = kept.group("s/of-copy", stream="s/copy")
    kept.store.policies.retention("s/copy", ab.RetainConsumed("s/of-copy"))
    read = consume(of_copy, 4)
    kept.retain()
    assert kept.numbers("s/copy") == {*range(10)} - read


def test_truncation_by_groups_stops_at_the_limit_and_the_slowest_group(kept: Kept) -> None:
    streams = kept.store.streams
    with pytest.raises(InvalidArgument, match="no reader group is a subscriber"):
        streams.truncate("s/a", by="groups")
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g"))
    kept.write(*range(10))
    place = kept.store.cuts.tail("s/a")
    kept.write(*range(10, 30))
    streams.truncate("s/a", place, by="groups")
    assert kept.numbers() == {*range(30)}
    read = consume(group, 5)
    streams.truncate("s/a", by="groups")
    assert kept.numbers() == {*range(30)} - read
    consume(group)
    streams.truncate("s/a", str(place), by="groups")
    assert kept.numbers() == {*range(10, 30)} - read
    streams.truncate("s/a", by="groups")
    assert kept.numbers() == set()
    wrongs: list[Callable[[], None]] = [
        lambda: streams.truncate("s/a"),
        lambda: streams.truncate("s/a", by="slowest"),  # type: ignore[arg-type]
        lambda: streams.truncate("s/a", by="groups", request="r"),
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument):
            wrong()


def test_a_group_that_is_reset_during_retention_loses_nothing(kept: Kept) -> None:
    """It was looked at before the transaction that truncates, and is looked at again within it."""
    group = kept.group("s/g")
    kept.store.policies.retention("s/a", ab.RetainConsumed("s/g"))
    kept.write(*range(10))
    consume(group)
    writing = kept.store.catalog.writing

    def behind_a_reset(subject: Any = None) -> Any:
        kept.store.catalog.writing = writing  # type: ignore[method-assign]
        group.reset(ab.HEAD)
        return writing(subject)

    kept.store.catalog.writing = behind_a_reset  # type: ignore[method-assign]
    kept.store.streams.truncate("s/a", by="groups")
    assert consume(group) == {*range(10)}


def test_an_archive_does_not_take_subscribers_along(kept: Kept, tmp_path: Path) -> None:
    group = kept.group("s/g")
    kept.write(*range(10))
    bound = ab.RetainFor("365d")
    for number, (policy, left) in enumerate(
        [(ab.RetainConsumed("s/g"), None), (ab.RetainConsumed("s/g", at_most=bound), bound)]
    ):
        kept.store.policies.retention("s/a", policy)
        kept.store.archives.create("s/a", tmp_path / str(number))
        kept.store.archives.import_(tmp_path / str(number), as_=f"s/back{number}", retention=True)
        assert kept.store.policies.retention(f"s/back{number}") == left
    consume(group)
    kept.retain()
    assert kept.numbers("s/back1") == {*range(10)}


def test_invalid_consumption_policies_are_refused(kept: Kept) -> None:
    group = kept.group("s/g")
    policy = ab.RetainConsumed("s/g", at_most=ab.RetainFor("7d") | ab.RetainBytes("1GB"), age_min="1h")
    assert ab.Retention.from_json(policy.to_json()) == policy
    assert policy == ab.RetainFor("7d") | ab.RetainConsumed(["s/g"], age_min="1h") | ab.RetainBytes("1GB")
    kept.store.policies.retention("s/a", policy)
    assert kept.store.policies.retention("s/a") == policy
    wrongs: list[Callable[[], object]] = [
        lambda: ab.RetainConsumed([]),
        lambda: ab.RetainConsumed(["g"]),
        lambda: ab.RetainConsumed(["s/g", "s/g"]),
        lambda: ab.RetainConsumed("s/g") | ab.RetainConsumed("s/h"),
        lambda: ab.RetainConsumed("s/g", at_most=ab.RetainFor("1h"), age_min="2h"),
        lambda: ab.RetainConsumed("s/g", release="now"),  # type: ignore[arg-type]
        lambda: ab.RetainConsumed([f"s/g{n}" for n in range(65)]),
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument):
            wrong()
    assert kept.store.subscribers.list() == kept.store.subscribers.list("s/a")
    with pytest.raises(NotFound):
        kept.store.subscribers.list("s/none")
    del group
