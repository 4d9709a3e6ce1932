"""How long events are kept: policies, what they let go, and readers that come too late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.catalog.port import Lease
from anabranch.catalog.state.retention import RETENTION
from anabranch.errors import InvalidArgument, StreamNotFound, Truncated
from anabranch.model.ids import Micros
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.retention.apply import retain, retain_if_due
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import bodies_of, sound
from tests.store.kit import SECOND
from tests.waiting import until

HOUR = 3600 * SECOND


@dataclass
class Kept:
    """A store whose clock the test moves."""

    store: Store
    clock: ManualClock

    def write(self, stream: str, *numbers: int, size: int = 0) -> None:
        with self.store.writer(stream) as writer:
            for n in numbers:
                writer.write(str(n).encode().rjust(max(size, 1)), key="abcdef"[n % 6])

    def hourly(self, stream: str, *numbers: int, size: int = 0) -> None:
        """One event an hour; an hour has passed behind the last."""
        for n in numbers:
            self.write(stream, n, size=size)
            self.clock.pass_time(HOUR)

    def numbers(self, stream: str) -> list[int]:
        return sorted(int(body) for body in bodies_of(self.store, stream))


@pytest.fixture(params=["memory", "postgres+memory"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    clock = ManualClock()
    url = fresh_url() if request.param == "postgres+memory" else "memory://"
    blobs = "memory://" if url != "memory://" else None
    with ab.connect(url, blobs=blobs, runtime=runtime_by(clock), create=True) as store:
        store.scopes.create("s")
        yield Kept(store, clock)
        assert sound(store)
    if blobs:
        drop(url)


def extents(store: Store, stream: str) -> int:
    view = store.streams.view(stream)
    with store.catalog.reading() as reading:
        return sum(len(reading.extents(log, 0, 1 << 60, 100)) for log in view.logs)


def test_old_events_are_removed_and_their_bytes_freed(kept: Kept) -> None:
    store = kept.store
    store.streams.create("s/a", retention=ab.RetainFor("5h"), scaling=2)
    store.streams.create("s/for-ever")
    kept.hourly("s/a", *range(10))
    kept.write("s/for-ever", 1)
    report = store.retain()
    assert (report.streams, report.truncated, report.events) == (1, 1, 5)
    assert kept.numbers("s/a") == [5, 6, 7, 8, 9]
    assert kept.numbers("s/for-ever") == [1]
    kept.clock.pass_time(HOUR)
    assert store.retain("s/a").events == 1
    assert store.retain("s/a").truncated == 0  # nothing is left to do, and no row changes
    before = extents(store, "s/a")
    store.collect()
    assert extents(store, "s/a") == before - 6


def test_age_bounds_are_exact_inside_compacted_files(kept: Kept) -> None:
    kept.store.streams.create("s/a", retention=ab.RetainFor("5h"))
    kept.hourly("s/a", *range(10))
    kept.store.compact(force=True)
    kept.store.retain()
    assert kept.numbers("s/a") == [5, 6, 7, 8, 9]


def test_the_newest_bytes_stay(kept: Kept) -> None:
    streams = kept.store.streams
    streams.create("s/a", scaling=2)
    kept.hourly("s/a", *range(20), size=100)
    each = kept.store.cuts.distance("s/a").bytes // 20
    kept.store.policies.retention("s/a", ab.RetainBytes(each * 8))
    kept.store.retain()
    assert kept.numbers("s/a") == [*range(12, 20)]
    kept.store.policies.retention("s/a", ab.RetainBytes(each * 8) | ab.RetainFor("3h"))
    kept.store.retain()
    assert kept.numbers("s/a") == [17, 18, 19]


def test_minimum_bounds_are_kept(kept: Kept) -> None:
    streams = kept.store.streams
    streams.create("s/a")
    kept.hourly("s/a", *range(10), size=100)
    each = kept.store.cuts.distance("s/a").bytes // 10
    kept.store.policies.retention("s/a", ab.RetainFor("2h", bytes_min=each * 6))
    kept.store.retain()
    assert kept.numbers("s/a") == [4, 5, 6, 7, 8, 9]
    kept.store.policies.retention("s/a", ab.RetainBytes(each, age_min="4h"))
    kept.store.retain()
    assert kept.numbers("s/a") == [6, 7, 8, 9]


def test_a_policy_belongs_to_its_stream_and_not_to_a_copy(kept: Kept) -> None:
    streams = kept.store.streams
    policy = ab.RetainFor("1h")
    streams.create("s/a", retention=policy)
    kept.hourly("s/a", 1, 2)
    streams.copy("s/a", "s/copy")
    streams.rename("s/a", "s/b")
    assert (kept.store.policies.retention("s/b"), kept.store.policies.retention("s/copy")) == (policy, None)
    kept.clock.pass_time(HOUR)
    kept.store.retain()
    assert (kept.numbers("s/b"), kept.numbers("s/copy")) == ([], [1, 2])
    assert kept.store.policies.retention("s/b", None) is None
    assert kept.store.policies.retention("s/b") is None
    kept.store.policies.retention("s/b", policy)
    streams.delete("s/b")
    with kept.store.catalog.reading() as reading:
        assert reading.states(RETENTION) == []
    with pytest.raises(StreamNotFound):
        kept.store.policies.retention("s/b", policy)
    assert kept.store.retain().streams == 0


def test_a_policy_is_set_once_for_a_request(kept: Kept) -> None:
    streams = kept.store.streams
    streams.create("s/a", retention=ab.RetainFor("1h"), request="made")
    streams.create("s/a", retention=ab.RetainFor("1h"), request="made")
    kept.store.policies.retention("s/a", ab.RetainFor("2h"), request="longer")
    kept.store.policies.retention("s/a", None)
    kept.store.policies.retention("s/a", ab.RetainFor("2h"), request="longer")
    assert kept.store.policies.retention("s/a") is None


def test_a_size_bound_of_stitched_older_events(kept: Kept) -> None:
    streams = kept.store.streams
    streams.create("s/old")
    streams.create("s/young")
    kept.hourly("s/old", *range(20), size=100)
    kept.hourly("s/young", *range(20, 30), size=100)
    each = kept.store.cuts.distance("s/young").bytes // 10
    streams.stitch(["s/young", "s/old"], into="s/all")
    kept.store.policies.retention("s/all", ab.RetainBytes(each * 12))
    kept.store.retain()
    assert kept.numbers("s/all") == [*range(8, 20)]  # reading order decides: the young ones came first
    kept.store.policies.retention("s/all", ab.RetainFor("1h"))
    kept.store.retain()
    assert kept.numbers("s/all") == []


# readers that come too late


@pytest.mark.parametrize("follow", [False, True])
def test_a_truncated_reader_continues_at_the_head_without_duplicates(kept: Kept, follow: bool) -> None:
    streams = kept.store.streams
    streams.create("s/a", scaling=2, retention=ab.RetainFor("5h"))
    kept.hourly("s/a", *range(6))
    with kept.store.reader("s/a", batch_rows=1) as early:
        seen = [int(payload) for _ in range(3) for payload in payloads(early)]
    kept.hourly("s/a", *range(6, 12))
    pointers = {int(event.body): event.pointer for event in kept.store.reader("s/a")}
    with kept.store.reader("s/a", start=early.position, follow=follow, batch_rows=1) as reader:
        assert kept.store.retain().events == 7
        with pytest.raises(Truncated) as told:
            reader.read()
        assert sum(told.value.head.values()) == 7
        with pytest.raises(Truncated):  # until it is told to go on
            reader.read()
        missed = set(range(7)) - set(seen)
        assert reader.skip_truncated() == len(missed)
        while len(seen) + len(missed) < 12:
            seen += [int(payload) for payload in payloads(reader)]
        assert sorted(seen) == sorted(set(range(12)) - missed)
        assert reader.skip_truncated() == 0
    with pytest.raises(Truncated):
        kept.store.fetch(pointers[0])
    assert int(kept.store.fetch(pointers[9]).body) == 9  # offsets have not changed


def payloads(reader: ab.Reader) -> list[bytes]:
    """The next batch, which is there."""
    batch = reader.read()
    assert batch is not None
    found: list[bytes] = batch.column("payload").to_pylist()
    return found


# in the background


def test_upkeep_applies_retention_once_a_period() -> None:
    with ab.connect("memory://", settings=Settings(maintenance_s=0.01, retention_s=0.0)) as store:
        store.scopes.create("s")
        store.streams.create("s/a", retention=ab.RetainFor(0))
        with store.writer("s/a") as writer:
            writer.write(b"1").result()
        until(lambda: not store.cuts.distance("s/a").events)


def test_one_process_at_a_time_applies_policies_once_a_period(kept: Kept) -> None:
    store = kept.store

    def round_(**settings: float | None) -> bool:
        runtime = runtime_by(kept.clock, settings=Settings(**settings))  # type: ignore[arg-type]
        return retain_if_due(store.catalog, runtime, store._cut_at) is not None

    assert not round_()  # there is no policy
    store.streams.create("s/a", retention=ab.RetainFor("1h"))
    assert not round_(retention_s=None)
    assert round_()
    kept.clock.pass_time(800 * SECOND)
    assert not round_()
    kept.clock.pass_time(200 * SECOND)
    now = kept.clock.now()
    with store.catalog.writing("lease other") as writing:
        writing.put_lease(Lease("other", "retain", "another process", now, Micros(now + SECOND)))
    assert not round_()
    kept.clock.pass_time(2 * SECOND)
    assert round_()


def test_a_concurrently_deleted_or_truncated_stream_is_skipped(kept: Kept) -> None:
    store, streams = kept.store, kept.store.streams
    streams.create("s/a", retention=ab.RetainFor("1h"))
    streams.create("s/b", retention=ab.RetainFor("1h"))
    kept.hourly("s/a", *range(5))
    kept.hourly("s/b", *range(5))
    inner = store._cut_at

    def cut_at(view: object, at: Micros, by_event: bool) -> ab.StreamCut:
        found = inner(view, at, by_event)  # type: ignore[arg-type]
        name = str(view.info.name)  # type: ignore[attr-defined]
        streams.delete(name) if name == "s/a" else streams.truncate(name, store.cuts.tail(name))
        return found

    report = retain(store.catalog, store.runtime, cut_at)
    assert (report.streams, report.truncated) == (2, 0)
    assert kept.numbers("s/b") == []


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=10),
    hours=st.integers(0, 12),
    size=st.one_of(st.none(), st.integers(0, 30)),
    at_least=st.integers(0, 5),
)
def test_retention_removes_what_the_model_removes(
    steps: list[tuple[int, bool]], hours: int, size: int | None, at_least: int
) -> None:
    """One segment, an hour between commits: what stays is told by ages and weights alone."""
    clock = ManualClock()
    with ab.connect("memory://", runtime=runtime_by(clock, settings=Settings(inline_bytes_max=200))) as store:
        made = Kept(store, clock)
        store.scopes.create("s")
        store.streams.create("s/a")
        events: list[tuple[int, int]] = []  # number, time
        for count, compacted in steps:
            made.write("s/a", *range(len(events), len(events) + count), size=100)
            events += [(len(events) + i, clock.now()) for i in range(count)]
            if compacted:
                store.compact(force=True)
            clock.pass_time(HOUR)
        each = store.cuts.distance("s/a").bytes // max(len(events), 1)
        policy = ab.RetainFor(hours * HOUR, bytes_min=at_least * each)
        if size is not None:
            policy |= ab.RetainBytes(max(size, at_least) * each)
        store.policies.retention("s/a", policy)
        store.retain()
        young = [n for n, at in events if at >= clock.now() - hours * HOUR]
        newest = [n for n, _ in events][max(0, len(events) - max(size, at_least)) :] if size is not None else None
        stays = set(young) if newest is None else set(young) & set(newest)
        stays |= {n for n, _ in events[max(0, len(events) - at_least) :]}
        assert made.numbers("s/a") == sorted(stays)


def test_policies_accept_durations_and_sizes_as_text() -> None:
    assert ab.RetainFor("1.5h").age_us == 1.5 * HOUR
    assert ab.RetainBytes("2GiB").size == 2 << 30
    with pytest.raises(InvalidArgument, match="7d"):
        ab.RetainFor("7 moons")
