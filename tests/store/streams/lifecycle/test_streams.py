"""Scopes and streams by name: what each verb does, what it refuses, and that a request asked again happened once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    InvalidArgument,
    InvalidCut,
    InvalidName,
    RequestMismatch,
    SchemaMismatch,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
from anabranch.model.cut import StreamCut
from anabranch.model.keyspace import FULL_KEY_RANGE, KeyRange
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.store.helpers import SCHEMA, bodies_of, events_of, sound
from tests.store.kit import SECOND


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with ab.connect("memory://", runtime=runtime_by(clock)) as opened:
        opened.scopes.create("s")
        opened.streams.create("s/raw", scaling=2)
        yield opened
        assert sound(opened)


def changes(store: Store) -> list[str]:
    with store.catalog.reading() as reading:
        return [change.kind for change in reading.changes(0, 1_000)]


# scopes


@pytest.mark.parametrize("tags", [{"a": "\ud800"}, {"\udfff": "b"}])
def test_tags_that_are_not_unicode_are_refused(store: Store, tags: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"a tag that is not Unicode can't be stored: .*\\ud|as UTF-8"):
        store.scopes.create("b", tags=tags)
    with pytest.raises(InvalidArgument, match=r"not Unicode|as UTF-8"):
        store.streams.create("s/b", tags=tags)


def test_scopes_are_listed_by_name_with_their_tags(store: Store) -> None:
    store.scopes.create("b", tags={"team": "x"})
    store.scopes.create("a")
    assert [(scope.name, dict(scope.tags)) for scope in store.scopes.list()] == [
        ("a", {}),
        ("b", {"team": "x"}),
        ("s", {}),
    ]
    assert store.scopes.get("b").tags == {"team": "x"}
    store.scopes.delete("b")
    with pytest.raises(ScopeNotFound):
        store.scopes.get("b")


def test_a_scope_is_created_once_unless_it_may_exist(store: Store) -> None:
    with pytest.raises(ScopeExists, match="'s'"):
        store.scopes.create("s")
    assert store.scopes.create("s", exist_ok=True).name == "s"


def test_only_an_empty_scope_can_be_deleted(store: Store) -> None:
    with pytest.raises(ScopeNotEmpty) as caught:
        store.scopes.delete("s")
    assert caught.value.streams == 1
    store.streams.delete("s/raw")
    store.scopes.delete("s")
    with pytest.raises(ScopeNotFound):
        store.streams.create("s/raw")
    store.scopes.create("s")
    store.streams.create("s/raw")


# streams


def test_a_stream_is_described_as_it_was_created(store: Store, clock: ManualClock) -> None:
    info = store.streams.create("s/typed", schema=SCHEMA, key="device", time="at", scaling=ab.Fixed(3), tags={"a": "b"})
    assert info == store.streams.get("s/typed")
    assert (str(info.name), info.sealed, info.epoch, info.tags) == ("s/typed", False, 0, {"a": "b"})
    assert (info.schema.columns.names, info.schema.key, info.schema.time) == (["device", "at", "n"], "device", "at")
    assert (info.created_at, info.schema_version) == (clock.now(), 1)
    assert [s.range for s in store.streams.view("s/typed").current] == list(FULL_KEY_RANGE.split(3))
    assert store.streams.exists("s/typed") and not store.streams.exists("s/none")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"tag": "owner"}, ["s/sensor-1", "s/sensor-2", "t/sensor-1"]),
        ({"tag": "owner=x"}, ["s/sensor-1", "t/sensor-1"]),
        ({"tag": "owner="}, []),
        ({"tag": ["owner=x", "hot"]}, ["s/sensor-1"]),
        ({"tag": {"owner": "y"}}, ["s/sensor-2"]),
        ({"pattern": "sensor-?"}, ["s/sensor-1", "s/sensor-2", "t/sensor-1"]),
        ({"pattern": "SENSOR-?"}, []),
        ({"pattern": "*/sensor-[13]"}, ["s/sensor-1", "t/sensor-1"]),
        ({"pattern": "t/*", "tag": "owner"}, ["t/sensor-1"]),
        ({"pattern": "t*"}, []),
    ],
)
def test_streams_are_listed_by_tag_and_by_pattern(store: Store, options: dict[str, Any], names: list[str]) -> None:
    store.scopes.create("t")
    for name, tags in {
        "s/sensor-1": {"owner": "x", "hot": "1"},
        "s/sensor-2": {"owner": "y"},
        "t/sensor-1": {"owner": "x"},
    }.items():
        store.streams.create(name, tags=tags)
    assert [str(info.name) for info in store.streams.list(**options)] == names
    assert [str(info.name) for info in store.streams.list("t", **options)] == [
        name for name in names if name.startswith("t/")
    ]


def test_scopes_and_groups_are_listed_by_tag_and_by_pattern(store: Store) -> None:
    store.scopes.create("t", tags={"team": "x"})
    assert [scope.name for scope in store.scopes.list(tag="team")] == ["t"]
    assert [scope.name for scope in store.scopes.list(pattern="[a-s]")] == ["s"]
    for name in ("s/dash", "s/alarm", "t/dash"):
        store.groups.open(name, streams=["s/raw"])
    assert store.groups.list(pattern="da*") == ["s/dash", "t/dash"]
    assert store.groups.list("s", pattern="*/da*") == ["s/dash"]


@pytest.mark.parametrize("options", [{"tag": "=x"}, {"tag": [""]}, {"tag": [7]}, {"pattern": ""}, {"pattern": 7}])
def test_a_filter_that_selects_nothing_by_mistake_is_refused(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"expected (a|item 1 of a)"):
        list(store.streams.list(**options))


def test_streams_are_listed_by_name_page_by_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CATALOG_PAGE_ROWS", 3)
    store.scopes.create("t")
    names = [f"{scope}/{i}" for scope in "st" for i in range(7)]
    for name in [*names, "s/_own"]:
        store.streams.create(name)
    assert [str(info.name) for info in store.streams.list()] == [*names[:7], "s/raw", *names[7:]]
    assert [str(info.name) for info in store.streams.list("t")] == names[7:]
    assert "s/_own" in [str(info.name) for info in store.streams.list("s", internal=True)]
    with pytest.raises(ScopeNotFound):
        list(store.streams.list("none"))


def test_a_stream_is_created_once_unless_exist_ok(store: Store) -> None:
    first = store.streams.create("s/typed", schema=SCHEMA, key="device")
    with pytest.raises(StreamExists, match="'s/typed'"):
        store.streams.create("s/typed", schema=SCHEMA, key="device")
    assert store.streams.create("s/typed", schema=SCHEMA, key="device", exist_ok=True).id == first.id
    for other in ({"schema": None}, {"schema": SCHEMA}, {"schema": SCHEMA, "key": "n"}):
        with pytest.raises(StreamExists):
            store.streams.create("s/typed", exist_ok=True, **other)  # type: ignore[arg-type]


def test_a_stream_created_under_a_former_name_is_new_and_empty(store: Store) -> None:
    old = store.streams.get("s/raw").id
    with store.writer("s/raw") as writer:
        writer.write(b"old")
    store.streams.delete("s/raw")
    assert store.streams.create("s/raw").id != old
    assert bodies_of(store, "s/raw") == []


def test_tags_are_replaced(store: Store) -> None:
    assert store.streams.tag("s/raw", {"a": "1", "b": "2"}).tags == {"a": "1", "b": "2"}
    assert store.streams.tag("s/raw", {"c": "ü"}).tags == {"c": "ü"}
    assert store.streams.get("s/raw").tags == {"c": "ü"}


MISTAKES: list[tuple[Callable[[Store], Any], type[AnabranchError]]] = [
    (lambda s: s.scopes.create("a/b"), InvalidName),
    (lambda s: s.scopes.create(""), InvalidName),
    (lambda s: s.streams.create("raw"), InvalidName),
    (lambda s: s.streams.create("s/-"), InvalidName),
    (lambda s: s.streams.create(None), InvalidName),  # type: ignore[arg-type]
    (lambda s: s.streams.create("none/raw"), ScopeNotFound),
    (lambda s: s.streams.create("s/x", scaling=0), InvalidArgument),
    (lambda s: s.streams.create("s/x", scaling=limits.SEGMENTS_MAX + 1), InvalidArgument),
    (lambda s: s.streams.create("s/x", scaling="many"), InvalidArgument),  # type: ignore[arg-type]
    (lambda s: s.streams.create("s/x", key="k"), InvalidArgument),
    (lambda s: s.streams.create("s/x", schema="text"), InvalidArgument),
    (lambda s: s.streams.create("s/x", schema=SCHEMA, key="none"), InvalidArgument),
    (lambda s: s.streams.create("s/x", schema=SCHEMA, time="n"), InvalidArgument),
    (lambda s: s.streams.create("s/x", tags={"a": 1}), InvalidArgument),  # type: ignore[dict-item]
    (lambda s: s.streams.create("s/x", tags={"a" * 300: "b"}), InvalidArgument),
    (lambda s: s.streams.create("s/x", tags={str(i): "b" for i in range(limits.TAGS_MAX + 1)}), InvalidArgument),
    (lambda s: s.streams.get("s/none"), StreamNotFound),
    (lambda s: s.streams.get("none/none"), ScopeNotFound),
    (lambda s: s.streams.delete("s/none"), StreamNotFound),
    (lambda s: s.streams.seal("s/none"), StreamNotFound),
    (lambda s: s.streams.tag("s/none", {}), StreamNotFound),
    (lambda s: s.streams.scale("s/none", 2), StreamNotFound),
    (lambda s: s.streams.scale("s/raw"), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", 2, split="0.0"), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", 0), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", split="9.9"), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", split="nine"), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", split="0.0", into=1), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", merge=["0.0"]), InvalidArgument),
    (lambda s: s.streams.scale("s/raw", replace={"0.0": [FULL_KEY_RANGE]}), InvalidArgument),
    (lambda s: s.streams.evolve("s/raw", SCHEMA), SchemaMismatch),
    (lambda s: s.cuts.at("s/raw", "soon"), InvalidArgument),
    (lambda s: s.cuts.at("s/raw", 0, by="heart"), InvalidArgument),
    (
        lambda s: s.streams.truncate("s/raw", StreamCut.of(s.streams.get("s/raw").id, {ab.SegmentId(9, 9): 1})),
        InvalidCut,
    ),
    (
        lambda s: s.streams.truncate("s/raw", StreamCut.of(s.streams.get("s/raw").id, {ab.SegmentId(0, 0): 0})),
        InvalidCut,
    ),
    (lambda s: s.fetch("f" * 48), ab.errors.InvalidPointer),
    (lambda s: s.fetch(7), ab.errors.InvalidPointer),  # type: ignore[arg-type]
    (lambda s: s.fetch("0" * 48), StreamNotFound),
    (lambda s: s.fetch(ab.EventPointer(s.streams.get("s/raw").id, ab.SegmentId(0, 0), 0)), ab.errors.EventNotFound),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_an_invalid_call_raises_and_changes_nothing(store: Store, number: int) -> None:
    mistake, error = MISTAKES[number]
    before = (changes(store), store.streams.get("s/raw"))
    with pytest.raises(error) as caught:
        mistake(store)
    assert "\n" not in str(caught.value) and str(caught.value)
    assert (changes(store), store.streams.get("s/raw")) == before


# scaling, sealing


def test_scaling_by_each_of_its_four_ways(store: Store) -> None:
    halves = store.streams.scale("s/raw", 4)
    assert [s.range for s in halves] == list(FULL_KEY_RANGE.split(4))
    split = store.streams.scale("s/raw", split=halves[0].id, into=3)
    assert len(split) == 6
    merged = store.streams.scale("s/raw", merge=[str(s.id) for s in split[:3]])
    assert [s.range for s in merged] == list(FULL_KEY_RANGE.split(4))
    middle = FULL_KEY_RANGE.high // 3
    replaced = store.streams.scale(
        "s/raw", replace={s.id: [KeyRange(0, middle), KeyRange(middle, FULL_KEY_RANGE.high)] for s in merged}
    )
    assert [s.range for s in replaced] == [KeyRange(0, middle), KeyRange(middle, FULL_KEY_RANGE.high)]
    assert store.streams.get("s/raw").epoch == 4
    assert store.streams.scale("s/raw", 2) != replaced
    assert store.streams.scale("s/raw", 2) == store.streams.view("s/raw").current
    assert store.streams.get("s/raw").epoch == 5


def test_a_sealed_stream_is_read_but_not_changed(store: Store) -> None:
    with store.writer("s/raw") as writer:
        writer.write(b"x")
    store.streams.seal("s/raw")
    version = store.streams.get("s/raw").version
    store.streams.seal("s/raw")
    assert store.streams.get("s/raw").version == version and store.streams.get("s/raw").sealed
    for change in (
        lambda: store.streams.scale("s/raw", 3),
        lambda: store.streams.fence("s/raw", 1),
        lambda: store.writer("s/raw"),
    ):
        with pytest.raises(StreamSealed):
            change()
    assert bodies_of(store, "s/raw") == [b"x"]
    store.streams.truncate("s/raw", store.cuts.tail("s/raw"))
    assert bodies_of(store, "s/raw") == []
    store.streams.delete("s/raw")


# truncation


def test_truncated_events_are_unreadable_and_offsets_stay(store: Store) -> None:
    with store.writer("s/raw") as writer:
        pointers = [writer.write(b"%d" % i, key=f"k{i % 5}").result() for i in range(20)]
        cut = store.cuts.tail("s/raw")
        store.streams.scale("s/raw", 3)
        pointers += [writer.write(b"%d" % i, key=f"k{i % 5}").result() for i in range(20, 30)]
    store.streams.truncate("s/raw", cut)
    assert store.cuts.head("s/raw") == cut or not events_of(store, "s/raw", end=cut)
    found = events_of(store, "s/raw")
    assert sorted(int(event.body) for event in found) == list(range(20, 30))
    assert {event.pointer for event in found} == set(pointers[20:])
    for pointer in pointers[:20]:
        with pytest.raises(Truncated):
            store.fetch(pointer)
    with pytest.raises(Truncated):
        events_of(store, "s/raw", start=pointers[0])
    assert store.fetch(pointers[25]).body == b"25"


def test_a_head_never_moves_back(store: Store) -> None:
    with store.writer("s/raw") as writer:
        for i in range(10):
            writer.write(b"%d" % i)
        writer.flush()
        early = store.cuts.head("s/raw")
        late = store.cuts.tail("s/raw")
    store.streams.truncate("s/raw", late)
    with suppress(Truncated):
        store.streams.truncate("s/raw", early)
    assert store.cuts.distance("s/raw") == (0, 0)


# schemas


def test_an_evolved_stream_reads_its_old_events_with_nulls(store: Store) -> None:
    store.streams.create("s/typed", schema=SCHEMA, key="device")
    with store.writer("s/typed") as writer:
        writer.write({"device": "a", "n": 1})
    info = store.streams.evolve("s/typed", [*SCHEMA, pa.field("extra", pa.large_string())])
    assert (info.schema_version, info.schema.columns.names) == (2, ["device", "at", "n", "extra"])
    assert info.schema.columns.field("extra").type == pa.string()
    again = store.streams.evolve("s/typed", info.schema.columns)
    assert again.schema_version == 2
    with store.writer("s/typed") as writer:
        writer.write({"device": "a", "n": 2, "extra": "x"})
    assert [(event.body["n"], event.body["extra"]) for event in events_of(store, "s/typed")] == [(1, None), (2, "x")]
    with pytest.raises(SchemaMismatch, match="'n'"):
        store.streams.evolve(
            "s/typed", pa.schema([("device", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
        )


# cuts by time


def test_cuts_at_append_times_precede_the_first_later_event(store: Store, clock: ManualClock) -> None:
    times = []
    with store.writer("s/raw") as writer:
        for i in range(10):
            times.append(clock.now())
            writer.write(b"%d" % i, key=f"k{i % 3}").result()
            clock.pass_time(SECOND)
            if i == 4:
                store.streams.scale("s/raw", 3)
    for i, time in enumerate(times):
        for moment in (time, time - SECOND + 1):
            cut = store.cuts.at("s/raw", moment)
            assert sorted(int(event.body) for event in events_of(store, "s/raw", start=cut)) == list(range(i, 10))
    assert store.cuts.at("s/raw", times[-1] + 1) == store.cuts.tail("s/raw")
    assert store.cuts.distance("s/raw", store.cuts.at("s/raw", 0)).events == 10


def test_cuts_at_event_times_miss_no_later_event(store: Store) -> None:
    moments = [5, 1, 9, 3, 7, 2, 8, 4, 6, 0]
    with store.writer("s/raw") as writer:
        for i, moment in enumerate(moments):
            writer.write(b"%d" % moment, key=f"k{i % 3}", time=moment).result()
    for moment in range(11):
        cut = store.cuts.at("s/raw", moment, by="event")
        before = {int(event.body) for event in events_of(store, "s/raw", end=cut)}
        assert all(each < moment for each in before)
        first = {s: o for s, o in cut.as_dict().items() if o < store.streams.view("s/raw").length(s)}
        for segment, offset in first.items():
            pointer = ab.EventPointer(store.streams.get("s/raw").id, segment, offset)
            assert int(store.fetch(pointer).body) >= moment


def test_a_stream_without_event_times_has_no_event_time_cuts(store: Store) -> None:
    store.streams.create("s/timeless", schema=[("n", pa.int64())])
    with pytest.raises(InvalidArgument, match="no event time"):
        store.cuts.at("s/timeless", 0, by="event")


# requests: asked again, the first result


REQUESTS: dict[str, Callable[[Store, str], Any]] = {
    "create scope": lambda s, r: s.scopes.create("new", request=r).name,
    "delete scope": lambda s, r: s.scopes.delete("empty", request=r),
    "create": lambda s, r: s.streams.create("s/new", schema=SCHEMA, key="device", request=r).id,
    "delete": lambda s, r: s.streams.delete("s/old", request=r),
    "seal": lambda s, r: s.streams.seal("s/old", request=r),
    "scale": lambda s, r: s.streams.scale("s/old", 3, request=r),
    "split": lambda s, r: s.streams.scale("s/old", split="0.0", request=r),
    "merge": lambda s, r: s.streams.scale("s/old", merge=["0.0", "0.1"], request=r),
    "fence": lambda s, r: s.streams.fence("s/old", 3, request=r),
    "truncate": lambda s, r: s.streams.truncate("s/old", s.cuts.head("s/old"), request=r),
    "evolve": lambda s, r: s.streams.evolve("s/typed", [*SCHEMA, pa.field("x", pa.int8())], request=r).schema_version,
    "tag": lambda s, r: s.streams.tag("s/old", {"a": "b"}, request=r).tags,
    "add check": lambda s, r: s.streams.add_check("s/typed", "c", "n > 0", request=r).schema.checks,
    "remove check": lambda s, r: s.streams.remove_check("s/typed", "known", request=r).schema.checks,
}

OTHERS: dict[str, Callable[[Store, str], Any]] = {
    "create scope": lambda s, r: s.scopes.create("new", tags={"a": "b"}, request=r),
    "delete scope": lambda s, r: s.scopes.delete("s", request=r),
    "create": lambda s, r: s.streams.create("s/new", schema=SCHEMA, key="n", request=r),
    "delete": lambda s, r: s.streams.delete("s/raw", request=r),
    "seal": lambda s, r: s.streams.seal("s/raw", request=r),
    "scale": lambda s, r: s.streams.scale("s/old", 4, request=r),
    "split": lambda s, r: s.streams.scale("s/old", split="0.0", into=3, request=r),
    "merge": lambda s, r: s.streams.scale("s/old", merge=["0.1", "0.2"], request=r),
    "fence": lambda s, r: s.streams.fence("s/old", 4, request=r),
    "truncate": lambda s, r: s.streams.truncate("s/old", s.cuts.tail("s/old"), request=r),
    "evolve": lambda s, r: s.streams.evolve("s/typed", [*SCHEMA, pa.field("y", pa.int8())], request=r),
    "tag": lambda s, r: s.streams.tag("s/old", {"a": "c"}, request=r),
    "add check": lambda s, r: s.streams.add_check("s/typed", "c", "n > 1", request=r),
    "remove check": lambda s, r: s.streams.remove_check("s/typed", "other", request=r),
}


@pytest.fixture
def furnished(store: Store) -> Store:
    store.scopes.create("empty")
    store.streams.create("s/old", scaling=2)
    store.streams.create("s/typed", schema=SCHEMA, key="device", checks={"known": "n < 10", "other": "n > -10"})
    with store.writer("s/old") as writer:
        writer.write(b"x")
    return store


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_repeated_request_returns_its_first_result(furnished: Store, verb: str) -> None:
    first = REQUESTS[verb](furnished, "r1")
    seen = changes(furnished)
    assert REQUESTS[verb](furnished, "r1") == first
    assert changes(furnished) == seen


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_request_id_identifies_one_call_with_its_arguments(furnished: Store, verb: str) -> None:
    REQUESTS[verb](furnished, "r1")
    seen = changes(furnished)
    for other in (OTHERS[verb], REQUESTS["tag" if verb == "create scope" else "create scope"]):
        with pytest.raises(RequestMismatch, match="'r1'"):
            other(furnished, "r1")
    assert changes(furnished) == seen


def test_a_repeated_scale_returns_its_own_segments(furnished: Store) -> None:
    first = furnished.streams.scale("s/old", 3, request="r1")
    furnished.streams.scale("s/old", 5)
    assert [s.id for s in furnished.streams.scale("s/old", 3, request="r1")] == [s.id for s in first]
    assert len(furnished.streams.view("s/old").current) == 5


def test_a_failed_request_may_be_repeated(store: Store) -> None:
    with pytest.raises(ScopeNotFound):
        store.streams.create("new/x", request="r1")
    store.scopes.create("new")
    assert str(store.streams.create("new/x", request="r1").name) == "new/x"


def test_every_change_of_a_streams_life_is_in_the_outbox(furnished: Store) -> None:
    furnished.streams.scale("s/old", 3)
    furnished.streams.fence("s/old", 1)
    furnished.streams.tag("s/old", {"a": "b"})
    furnished.streams.truncate("s/old", furnished.cuts.tail("s/old"))
    furnished.streams.seal("s/old")
    furnished.streams.delete("s/old")
    furnished.scopes.delete("empty")
    assert changes(furnished)[-7:] == ["scaled", "fenced", "tagged", "truncated", "sealed", "deleted", "scope deleted"]
