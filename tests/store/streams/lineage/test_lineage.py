"""What streams share, and where their events came from: told from spans and notes, held to naive answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.lineage import LINEAGE
from anabranch.errors import StreamNotFound
from anabranch.model.stream import StreamView
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.store.helpers import by_key, events_of, store_at
from tests.store.kit import SECOND


@pytest.fixture(params=["memory", "postgres+memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as opened:
        yield opened


def write(store: Store, stream: str, *bodies: int) -> None:
    with store.writer(stream) as writer:
        for body in bodies:
            writer.write(str(body).encode(), key="abcdef"[body % 6])


# diff


def test_a_copy_shares_all_until_either_is_written_to(store: Store) -> None:
    streams = store.streams
    streams.create("s/a", scaling=2)
    write(store, "s/a", *range(10))
    weight = store.cuts.distance("s/a").bytes
    streams.copy("s/a", "s/b")
    found = store.lineage.diff("s/a", "s/b")
    assert found.shared_distance == (10, weight)
    assert (found.only_first, found.only_second) == ((), ())
    assert found.alike == (store.cuts.tail("s/a"), store.cuts.tail("s/b"))
    write(store, "s/a", 10, 11, 12)
    write(store, "s/b", 20)
    streams.scale("s/b", 1)
    write(store, "s/b", 21)
    found = store.lineage.diff("s/a", "s/b")
    assert (found.shared_distance.events, found.only_first_distance.events) == (10, 3)
    assert found.only_second_distance.events == 2
    assert store.cuts.distance("s/a", end=found.alike[0]).events == 10
    assert store.cuts.distance("s/b", end=found.alike[1]).events == 10
    again = store.lineage.diff("s/b", "s/a")
    assert (again.only_first, again.only_second) == (found.only_second, found.only_first)
    store.compact(force=True)
    compacted = store.lineage.diff("s/a", "s/b")
    assert (compacted.alike, compacted.shared_distance.events) == (found.alike, 10)


def test_ranges_say_where_shared_events_lie_in_the_other(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", *range(10))
    streams.create("s/b")
    write(store, "s/b", *range(50, 55))
    part = ab.StreamRange("s/a", store.cuts.after("s/a", events=4))
    streams.append(part, "s/b")
    ((shared, other, start),) = store.lineage.diff("s/a", "s/b").shared
    assert (shared.start, shared.stop, start) == (4, 10, 4)
    assert store.fetch(ab.EventPointer(streams.get("s/b").id, other, start)).body == b"4"
    streams.create("s/c")
    assert store.lineage.diff("s/a", "s/c").shared == ()
    with pytest.raises(StreamNotFound):
        store.lineage.diff("s/a", "s/none")


def test_a_range_that_the_other_has_twice_is_shared_once(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    write(store, "s/a", *range(10))
    streams.create("s/b")
    for first, last in ((0, 8), (2, 5)):
        cuts = (store.cuts.after("s/a", events=n) for n in (first, last))
        streams.append(ab.StreamRange("s/a", *cuts), "s/b")
    found = store.lineage.diff("s/a", "s/b")
    assert [(part.start, part.stop) for part in found.only_first] == [(8, 10)]
    assert (found.only_second, len(found.shared)) == ((), 2)


def places(view: StreamView) -> dict[tuple[object, int], tuple[object, int]]:
    """Where each event lies, one by one: the log and position by segment and offset."""
    found: dict[tuple[object, int], tuple[object, int]] = {}
    for segment in view.ordered:
        for span in view.spans.get(segment.id, ()):
            stop = view.logs[span.log].length if span.stop is None else span.stop
            for position in range(span.start, stop):
                offset = span.offset + position - span.start
                if offset >= segment.head:
                    found[segment.id, offset] = (span.log, position)
    return found


Steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "copy", "copy", "append", "scale", "truncate", "compact"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(1, 5),
    ),
    min_size=4,
    max_size=14,
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(Steps)
def test_a_diff_equals_a_comparison_of_all_events(steps: list[tuple[str, int, int, int]]) -> None:
    names = [f"s/{name}" for name in "abcd"]
    with ab.connect("memory://") as store:
        streams = store.streams
        store.scopes.create("s")
        streams.create(names[0], scaling=2)
        for verb, first, second, amount in steps:
            living = [name for name in names if streams.exists(name)]
            source, onto = living[first % len(living)], living[second % len(living)]
            if verb == "write":
                write(store, source, *range(amount))
            elif verb == "copy" and len(living) < len(names):
                part = ab.StreamRange(source, end=store.cuts.after(source, events=amount * 3))
                streams.copy(part, names[len(living)])
            elif verb == "append" and store.cuts.distance(source).events < 40:
                streams.append(source, onto)
            elif verb == "scale":
                streams.scale(source, 1 + amount % 3)
            elif verb == "truncate":
                streams.truncate(source, store.cuts.after(source, events=amount))
            elif verb == "compact":
                store.compact(force=True)
        living = [name for name in names if streams.exists(name)]
        for one, other in product(living, living):
            found = store.lineage.diff(one, other)
            mine, theirs = places(streams.view(one)), places(streams.view(other))
            shared = {
                ((part.segment, part.start + i), (segment, start + i))
                for part, segment, start in found.shared
                for i in range(part.events)
            }
            assert shared == {(m, t) for m, at in mine.items() for t, there in theirs.items() if at == there}
            only = {(part.segment, n) for part in found.only_first for n in range(part.start, part.stop)}
            assert only == {m for m, at in mine.items() if at not in theirs.values()}
            other_only = {(part.segment, n) for part in found.only_second for n in range(part.start, part.stop)}
            assert other_only == {t for t, at in theirs.items() if at not in mine.values()}
            begun = [by_key(events_of(store, n, end=cut)) for n, cut in zip((one, other), found.alike, strict=True)]
            assert begun[0] == begun[1]
            assert one != other or found.alike == (store.cuts.tail(one), store.cuts.tail(one))


# lineage


def test_lineage_lists_copies_appends_and_stitches(store: Store) -> None:
    streams = store.streams
    for name in ("s/a", "s/b"):
        streams.create(name)
        write(store, name, 1, 2, 3)
    assert store.lineage.origins("s/a") == ()
    cut = store.cuts.after("s/a", events=1)
    streams.copy(ab.StreamRange("s/a", cut), "s/c")
    streams.append("s/b", "s/c")
    copied, appended = store.lineage.origins("s/c")
    assert (copied.how, appended.how) == ("copied", "appended")
    assert (copied.parts[0].name, copied.parts[0].events, copied.parts[0].start) == ("s/a", 2, str(cut))
    assert appended.parts[0].source == streams.get("s/b").id
    streams.stitch(["s/c", "s/b"], into="s/d")
    (stitched,) = store.lineage.origins("s/d")
    assert [(part.name, part.events) for part in stitched.parts] == [("s/c", 5), ("s/b", 3)]
    assert [(each.how, each.name) for each in stitched.parts[0].ancestors] == [("appended", "s/b"), ("copied", "s/a")]
    streams.rename("s/a", "s/renamed")
    streams.delete("s/b")
    names = [part.name_now for origin in store.lineage.origins("s/c") for part in origin.parts]
    assert names == ["s/renamed", None]
    streams.copy("s/a" if streams.exists("s/a") else "s/renamed", "s/e", request="once")
    streams.copy("s/renamed", "s/e")  # asked again: nothing more is noted
    assert len(store.lineage.origins("s/e")) == 1


def test_lineage_outlives_sources_and_the_outbox() -> None:
    clock = ManualClock()
    with ab.connect("memory://", runtime=runtime_by(clock)) as store:
        streams = store.streams
        store.scopes.create("s")
        streams.create("s/0")
        write(store, "s/0", 1, 2, 3)
        for generation in range(1, 30):
            streams.copy(f"s/{generation - 1}", f"s/{generation}")
            streams.delete(f"s/{generation - 1}")
            clock.pass_time(SECOND)
        clock.pass_time(2 * limits.CHANGES_KEPT_US)
        store.collect()
        with store.catalog.reading() as reading:
            assert reading.changes(0, 10) == []
            assert len(reading.states(LINEAGE)) == 1  # those that are gone left none
            assert sum(len(str(row[3])) for row in reading.export("states") if row[0] == LINEAGE.name) < 4_000
        (origin,) = store.lineage.origins("s/29")
        assert (origin.parts[0].name, origin.parts[0].name_now) == ("s/28", None)
        names = [ancestor.name for ancestor in origin.parts[0].ancestors]
        assert names == [f"s/{27 - i}" for i in range(limits.ANCESTORS_MAX)]
        store.export_manifest()
        streams.delete("s/29")
        with store.catalog.reading() as reading:
            assert reading.states(LINEAGE) == []


def test_the_cost_of_lineage_does_not_grow(store: Store) -> None:
    streams = store.streams
    streams.create("s/a")
    streams.create("s/b")
    write(store, "s/b", 1)
    for _ in range(40):
        streams.append("s/b", "s/a")
    assert [part.events for origin in store.lineage.origins("s/a") for part in origin.parts] == [1] * 40
    with store.catalog.reading() as reading:
        pages = [page.origins for _, page in reading.states(LINEAGE)]
    assert [len(page) for page in pages] == [16, 16, 8]
    streams.delete("s/a")
    with store.catalog.reading() as reading:
        assert reading.states(LINEAGE) == []


def test_lineage_names_the_archive_of_an_import(store: Store, tmp_path: Path) -> None:
    store.streams.create("s/a")
    write(store, "s/a", 1, 2, 3)
    store.archives.create("s/a", tmp_path / "kept")
    store.archives.import_(tmp_path / "kept", as_="s/back")
    (origin,) = store.lineage.origins("s/back")
    assert (origin.how, origin.parts[0].name, origin.parts[0].events) == ("imported", "s/a", 3)
    assert str(tmp_path / "kept") in str(origin.parts[0].place)
