"""Replacing a time range: what lay in it is gone, what was given stands there, and everything else stays as it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.core import cuts
from anabranch.errors import InvalidArgument, RequestMismatch, SchemaMismatch, StreamSealed, Truncated
from anabranch.log.rewrite import RewrittenFile
from anabranch.log.time_scan import TimeScan
from anabranch.log.view import load
from anabranch.model.replaced import Replaced
from anabranch.model.stream import StreamView
from anabranch.store import Store
from anabranch.transfer.jobs import replace_range
from tests.store.helpers import ANYWHERE, store_at

COLUMNS = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def rows(*each: tuple[str, int | None, int]) -> pa.Table:
    keys, times, numbers = zip(*each, strict=True) if each else ((), (), ())
    arrays = [
        pa.array(keys, pa.string()),
        pa.array(times, pa.int64()).cast(COLUMNS.field("at").type),
        pa.array(numbers, pa.int64()),
    ]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


def make(store: Store, name: str = "s/x", *, segments: int = 1) -> None:
    store.streams.create(name, schema=COLUMNS, key="key", time="at", scaling=segments)


def write(store: Store, table: pa.Table, name: str = "s/x") -> None:
    with store.writer(name) as writer:
        writer.write_batch(table).result()


def read(store: Store, name: str = "s/x") -> pa.Table:
    with store.reader(name) as reader:
        return pa.Table.from_batches([b.select(COLUMNS.names) for b in reader.batches()], schema=COLUMNS)


def numbers(store: Store, name: str = "s/x") -> list[int]:
    found: list[int] = read(store, name).column("n").to_pylist()
    return found


def healthy(store: Store) -> None:
    assert [str(each) for each in store.check()] == []


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        yield made


# as a filter would

Row = tuple[str, int | None, int]


def by_key(found: Sequence[Row]) -> dict[str, list[Row]]:
    held: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        held[row[0]].append(row)
    return dict(held)


times = st.one_of(st.none(), st.integers(0, 40), st.integers(0, 40))
batches = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdef"), times), min_size=1, max_size=12), min_size=1, max_size=6
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), batches),
        st.tuples(st.just("write"), batches),
        st.tuples(
            st.just("replace"),
            st.tuples(
                st.integers(-2, 42),
                st.integers(1, 44),
                st.one_of(st.none(), st.lists(st.tuples(st.sampled_from("abcdef"), times), max_size=8)),
                st.sampled_from(["table", "stream", "range"]),
            ),
        ),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("scale"), st.integers(1, 4)),
        st.tuples(st.just("collect"), st.none()),
        st.tuples(st.just("truncate"), st.integers(0, 6)),
    ),
    min_size=3,
    max_size=9,
)


def live(store: Store, name: str, life: Sequence[tuple[str, Any]]) -> None:
    """Do all that, and compare the stream with a filter over its rows each time."""
    make(store, name, segments=2)
    written = made = 0

    def numbered(found: Sequence[tuple[str, int | None]]) -> list[Row]:
        nonlocal written
        written += len(found)
        return [(key, time, written - len(found) + i) for i, (key, time) in enumerate(found)]

    for verb, what in life:
        before = rows_of(store, name)
        match verb:
            case "write":
                for batch in what:
                    new = numbered(batch)
                    write(store, rows(*new), name)
                    before += new
                assert by_key(rows_of(store, name)) == by_key(before)
            case "replace":
                low, width, found, how = what
                new = numbered(found or [])
                given_as: Any = None if found is None else rows(*new)
                if found is not None and how != "table":
                    made += 1
                    other = f"{name}-{made}"
                    make(store, other, segments=1 + made % 3)
                    write(store, rows(*new), other)
                    given_as = other if how == "stream" else ab.StreamRange(other)
                done = store.streams.replace(name, between=(low, low + width), with_=given_as)
                table = read_table(before)
                inside = pc.and_(pc.greater_equal(us(table), low), pc.less(us(table), low + width))
                inside = pc.fill_null(inside, False)
                after = rows_of(store, name)
                kept = pa.concat_tables([table.filter(pc.invert(inside)), rows(*new)])
                order = [(column, "ascending") for column in ("n", "key")]
                assert read_table(after).sort_by(order).equals(kept.sort_by(order))
                assert (done.removed, done.added) == (pc.sum(inside).as_py() or 0, len(new))
                is_in_order(before, new, after, low, low + width)
            case "compact":
                store.compact(force=True)
            case "collect":
                store.collect(horizon_us=0)
            case "scale":
                store.streams.scale(name, what)
            case "truncate":
                store.streams.truncate(name, store.cuts.after(name, events=what))
        if verb in ("compact", "collect", "scale"):
            assert by_key(rows_of(store, name)) == by_key(before)
    healthy(store)


def us(table: pa.Table) -> pa.ChunkedArray:
    return table.column("at").cast(pa.int64())


def read_table(found: Sequence[Row]) -> pa.Table:
    return rows(*found)


def rows_of(store: Store, name: str) -> list[Row]:
    table = read(store, name)
    return list(zip(table.column("key").to_pylist(), us(table).to_pylist(), table.column("n").to_pylist(), strict=True))


def is_in_order(before: Sequence[Row], new: Sequence[Row], after: Sequence[Row], low: int, high: int) -> None:
    """What stays of each key keeps its order; so does the replacement; and of what stays, all that stood in front of the
    first event of the range, and was earlier, does so still, and what is late enough stands behind where the key has it."""
    replacement = {row[2] for row in new}
    old, fresh, now = by_key(before), by_key(new), by_key(after)
    for key, found in now.items():
        kept = [row for row in old.get(key, []) if row[1] is None or not low <= row[1] < high]
        assert [row for row in found if row[2] not in replacement] == kept
        assert [row for row in found if row[2] in replacement] == fresh.get(key, [])
        if key not in fresh:
            continue
        first = next(i for i, row in enumerate(found) if row[2] in replacement)
        assert found[first : first + len(fresh[key])] == fresh[key]  # they stand together
        removed = [i for i, row in enumerate(old.get(key, [])) if row[1] is not None and low <= row[1] < high]
        if removed:  # nothing that stood behind the first removed event of the key is in front of the replacement
            in_front = [row for row in old[key][: removed[0]] if row[1] is None or not low <= row[1] < high]
            assert found[:first] == in_front[:first]


@settings(max_examples=40)
@given(steps)
def test_a_replacement_is_a_filter_and_an_insertion(life: Sequence[tuple[str, Any]]) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        live(store, "s/x", life)


@pytest.fixture
def tiny_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all that lies between removed events is rewritten."""
    monkeypatch.setattr(limits, "REPLACE_VIEW_EVENTS", 4)
    monkeypatch.setattr(limits, "REPLACE_RUNS_MIN", 1)
    monkeypatch.setattr(limits, "REPLACE_EVENTS_MAX", 5)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps)
def test_a_replacement_with_many_rewritten_events(tiny_portions: None, life: Sequence[tuple[str, Any]]) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        live(store, "s/x", life)


_names = count()


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(life=steps)
def test_and_so_on_each_catalog(store: Store, life: Sequence[tuple[str, Any]]) -> None:
    live(store, f"s/life{next(_names)}", life)


# which way it goes


def hour(store: Store, name: str = "s/x", *, segments: int = 1) -> None:
    """Ten events of each of ten keys, in order of time, in several commits."""
    make(store, name, segments=segments)
    for tens in range(10):
        write(store, rows(*((f"k{n % 10}", 10 * tens + n, 10 * tens + n) for n in range(10))), name)


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("compacted", [False, True])
def test_in_order_events_are_replaced_in_the_catalog_alone(store: Store, segments: int, compacted: bool) -> None:
    hour(store, segments=segments)
    if compacted:
        store.compact(force=True)
    before = len(list(store.blobs.list("")))
    done = store.streams.replace("s/x", between=(33, 67), with_=None)
    assert (done.method, done.removed, done.added, done.rewritten) == ("metadata", 34, 0, 0)
    assert sorted(numbers(store)) == [*range(33), *range(67, 100)]
    assert len(list(store.blobs.list(""))) == before
    healthy(store)


def test_only_scattered_kept_events_are_rewritten(store: Store) -> None:
    make(store)
    mixed = [("k", 50 if n % 2 else 10, n) for n in range(200)]
    order = [*(("k", 1, 1000 + n) for n in range(50)), *mixed, *(("k", 99, 2000 + n) for n in range(50))]
    write(store, rows(*order))
    done = store.streams.replace("s/x", between=(50, 51), with_=rows(("k", 50, -1)))
    assert (done.method, done.removed, done.added, done.rewritten) == ("rewritten", 100, 1, 99)
    kept = [row[2] for row in order if row[1] != 50]
    assert numbers(store) == [*kept[:51], -1, *kept[51:]]
    view = store.streams.view("s/x")
    assert max(len(spans) for spans in view.spans.values()) <= 4
    healthy(store)
    assert not [info for info in store.streams.list(internal=True) if "replacing" in str(info.name)]


def test_the_replacement_is_at_the_place_of_the_removed_events(store: Store) -> None:
    hour(store, segments=2)
    hour(store, "s/repaired", segments=3)
    tail = store.cuts.tail("s/repaired")
    repaired = ab.StreamRange("s/repaired", store.cuts.at("s/repaired", 40, by="event"), tail)
    done = store.streams.replace("s/x", between=(40, 100), with_=repaired)
    assert (done.method, done.removed, done.added) == ("metadata", 60, 60)
    assert {key: [row[2] for row in found] for key, found in by_key(rows_of(store, "s/x")).items()} == {
        f"k{n}": list(range(n, 100, 10)) for n in range(10)
    }
    assert store.lineage.origins("s/x")[0].how == "replaced"
    healthy(store)


def test_pointers_of_kept_events_are_mapped(store: Store) -> None:
    hour(store, segments=2)
    with store.reader("s/x") as reader:
        before = {event.body["n"]: event.pointer for event in reader}
    done = store.streams.replace("s/x", between=(40, 50), with_=rows(("k1", 45, 1000)))
    for number, pointer in before.items():
        found = done.pointers(pointer)
        assert [store.fetch(each).body["n"] for each in found] == ([] if 40 <= number < 50 else [number])
        with pytest.raises(Truncated):
            store.fetch(pointer)
    assert Replaced.from_json(done.to_json()) == done


def test_by_append_time(tmp_path: Path) -> None:
    with store_at("memory", tmp_path) as store:
        make(store)
        write(store, rows(("a", 9, 1)))
        with store.reader("s/x") as reader:
            first = next(iter(reader)).appended_us
        with store.reader("s/x") as reader:
            appended = [event.appended_us for event in reader]
        write(store, rows(("a", 3, 2)))
        with store.reader("s/x") as reader:
            second = [event.appended_us for event in reader][1]
        assert first is not None
        assert second is not None
        assert first == appended[0]
        assert first < second
        done = store.streams.replace("s/x", between=(first, second), with_=rows(("a", 5, 3)), by="append")
        assert (done.removed, numbers(store)) == (1, [3, 2])
        assert store.streams.replace("s/x", between=(second, second + 1), with_=None, by="append").removed == 1
        assert numbers(store) == [3]


# asked again, cut off, refused


def test_a_repeated_replacement_is_applied_once(store: Store) -> None:
    hour(store)
    new = rows(("k1", 45, 1000))
    first = store.streams.replace("s/x", between=(40, 50), with_=new, request="once")
    again = store.streams.replace("s/x", between=(40, 50), with_=new, request="once")
    assert again == first
    assert len(numbers(store)) == 91
    for other in ({"with_": rows(("k1", 45, 1001))}, {"with_": None}, {"with_": new, "by": "append"}):
        with pytest.raises(RequestMismatch):
            store.streams.replace("s/x", between=(40, 50), request="once", **other)


def test_an_interrupted_replacement_resumes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLACE_EVENTS_MAX", 10)
    make(store)
    write(store, rows(*(("k", 50 if n % 2 else 10, n) for n in range(100))))
    before = rows_of(store, "s/x")
    written: list[int] = []

    class Killed(BaseException):
        pass

    def counted(*arguments: Any) -> Any:
        if len(written) == 2:
            raise Killed
        written.append(1)
        return RewrittenFile(*arguments)

    monkeypatch.setattr(replace_range, "RewrittenFile", counted)
    with pytest.raises(Killed):
        store.streams.replace("s/x", between=(50, 51), with_=None, window=1)
    assert rows_of(store, "s/x") == before
    healthy(store)
    store.compact(force=True)
    store.collect(horizon_us=0)
    store.collect(horizon_us=0)
    written[:] = [1] * 10

    def going_on(*arguments: Any) -> Any:
        written.append(1)
        return RewrittenFile(*arguments)

    monkeypatch.setattr(replace_range, "RewrittenFile", going_on)
    done = store.streams.replace("s/x", between=(50, 51), with_=None)
    assert done.rewritten > 2 * 8
    assert len(written) - 10 == 3  # of five, two were there
    assert rows_of(store, "s/x") == [row for row in before if row[1] != 50]
    healthy(store)
    assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/x"]


def test_invalid_replacements_are_refused_and_change_nothing(store: Store) -> None:
    hour(store)
    store.streams.create("s/raw")
    store.streams.create("s/timeless", schema=pa.schema([("n", pa.int64())]))
    with store.bytes("s/bytes", "xb") as file:
        file.write(b"x")
    before = rows_of(store, "s/x")
    replace = store.streams.replace
    for between in ((5, 5), (6, 5), 5, (1, 2, 3)):
        with pytest.raises(InvalidArgument, match="between="):
            replace("s/x", between=between, with_=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="expected by="):
        replace("s/x", between=(1, 2), with_=None, by="both")
    with pytest.raises(InvalidArgument, match="no event time"):
        replace("s/timeless", between=(1, 2), with_=None)
    with pytest.raises(InvalidArgument, match="is a byte stream"):
        replace("s/bytes", between=(0, 2), with_=None)
    with pytest.raises(SchemaMismatch):
        replace("s/x", between=(1, 2), with_="s/raw")
    with pytest.raises(SchemaMismatch):
        replace("s/x", between=(1, 2), with_=pa.table({"other": [1]}))
    with pytest.raises(InvalidArgument):
        replace("s/x", between=(1, 2), with_=object())
    assert rows_of(store, "s/x") == before
    assert not [info for info in store.streams.list(internal=True) if info.name.scope == "_ephemeral"]
    healthy(store)


# whoever uses the stream meanwhile


def test_writers_continue_without_losing_events(store: Store) -> None:
    hour(store, segments=2)
    with store.writer("s/x") as writer:
        for round_ in range(5):
            for n in range(20):
                writer.write({"key": f"k{n}", "at": 200 + n, "n": 1000 * (round_ + 1) + n})
            store.streams.replace("s/x", between=(10 * round_, 10 * round_ + 10), with_=None)
        writer.flush()
    late = [1000 * (round_ + 1) + n for round_ in range(5) for n in range(20)]
    assert sorted(numbers(store)) == [*range(50, 100), *late]
    healthy(store)


def test_events_appended_during_the_scan_are_scanned_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    hour(store)
    honest = TimeScan.advance
    appended: list[int] = []

    def meanwhile(self: Any, *arguments: Any) -> None:
        honest(self, *arguments)
        number = 1000 + len(appended)
        appended.append(number)
        write(store, rows(("k", 45, number), ("k", 60, -number)))

    monkeypatch.setattr(TimeScan, "advance", meanwhile)
    done = store.streams.replace("s/x", between=(40, 50), with_=None)
    assert len(appended) == limits.REPLACE_TRIES_MAX
    assert done.removed == 10 + len(appended)
    assert sorted(numbers(store)) == sorted([*(-n for n in appended), *range(40), *range(50, 100)])


def test_a_replacement_keeps_id_schema_policies_and_seal(store: Store) -> None:
    hour(store)
    store.aliases.add("s/x", "s/alias")
    store.policies.retention("s/x", ab.RetainFor("365d"))
    before = store.streams.get("s/x")
    store.streams.replace("s/alias", between=(40, 50), with_=None)
    store.streams.seal("s/x")
    store.streams.replace(before.id, between=(50, 60), with_=rows(("k", 55, 1000)))
    after = store.streams.get("s/alias")
    assert (after.id, after.name, after.schema, after.sealed) == (before.id, before.name, before.schema, True)
    assert store.policies.retention("s/x") == ab.RetainFor("365d")
    with pytest.raises(StreamSealed), store.writer("s/x") as writer:
        writer.write({"key": "k", "at": 1, "n": 1}).result()
    assert len(numbers(store)) == 81
    healthy(store)


def test_a_replacement_may_add_columns_and_copies_keep_theirs(store: Store) -> None:
    hour(store)
    store.streams.copy("s/x", "s/copy")
    wider = pa.schema([*COLUMNS, ("note", pa.string())])
    store.streams.create("s/noted", schema=wider, key="key", time="at")
    with store.writer("s/noted") as writer:
        writer.write({"key": "k", "at": 45, "n": 1000, "note": "repaired"}).result()
    store.streams.replace("s/x", between=(40, 50), with_="s/noted")
    with store.reader("s/x") as reader:
        noted = {event.body["n"]: event.body["note"] for event in reader}
    assert {number for number, note in noted.items() if note} == {1000}
    assert numbers(store, "s/copy") == list(range(100))
    store.compact(force=True)
    store.collect(horizon_us=0)
    assert numbers(store, "s/copy") == list(range(100))
    healthy(store)


def test_an_ephemeral_stream_and_a_raw_one(store: Store) -> None:
    with store.ephemeral.create("s/tmp", schema=COLUMNS, key="key", time="at") as held:
        write(store, rows(("a", 1, 1), ("a", 2, 2)), "s/tmp")
        store.streams.replace(held.id, between=(1, 2), with_=None)
        assert numbers(store, "s/tmp") == [2]
        assert store.ephemeral.is_ephemeral("s/tmp")
    store.streams.create("s/raw")
    with store.writer("s/raw") as writer:
        for n in range(4):
            writer.write(b"%d" % n, key="k", time=n).result()
    kinds = [("key", pa.string()), ("time", COLUMNS.field("at").type), ("payload", pa.binary())]
    new = pa.table({"key": ["k"], "time": pa.array([1], kinds[1][1]), "payload": [b"new"]}, schema=pa.schema(kinds))
    store.streams.replace("s/raw", between=(1, 3), with_=new)
    with store.reader("s/raw") as reader:
        assert [event.body for event in reader] == [b"0", b"new", b"3"]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 20)), min_size=1, max_size=30),
    st.integers(0, 30),
    st.integers(0, 20),
    st.integers(1, 20),
    st.integers(1, 3),
    st.booleans(),
)
def test_a_reader_continues_after_a_replacement(
    found: list[tuple[str, int]], read_first: int, low: int, width: int, segments: int, scaled: bool
) -> None:
    """It is told once, and then reads each event that stays just once, and of the replacement all or nothing."""
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        make(store, segments=segments)
        model = [(key, time, n) for n, (key, time) in enumerate(found)]
        for n in range(0, len(model), 5):
            write(store, rows(*model[n : n + 5]))
            if scaled and n == 10:
                store.streams.scale("s/x", segments + 1)
        with store.reader("s/x") as reader:
            seen = [event.body["n"] for _, event in zip(range(read_first), reader, strict=False)]
            stood = reader.position
            store.streams.replace("s/x", between=(low, low + width), with_=rows(("a", low, -1), ("f", low, -2)))
            view = load_view(store)
            known = cuts.map_relocated(view, stood)
            with pytest.raises(Truncated):
                store.cuts.distance("s/x", stood)
            reader.skip_truncated()
            rest = [event.body["n"] for event in reader]
        kept = [n for _, time, n in model if not low <= time < low + width]
        if known is None:
            assert sorted(rest) == sorted([*kept, -1, -2])
            return
        assert sorted(n for n in {*seen, *rest} if n in kept) == kept
        assert len([n for n in [*seen, *rest] if n in kept]) == len(kept)
        assert sum(n < 0 for n in rest) in (0, 2)


def load_view(store: Store) -> StreamView:
    ident = store.streams.get("s/x").id
    with store.catalog.reading() as reading:
        return load(reading, ident)


def test_a_reader_at_the_tail_goes_on_at_the_tail_and_one_before_the_hour_reads_the_new_one(store: Store) -> None:
    hour(store, segments=2)
    with store.reader("s/x") as ahead, store.reader("s/x") as early:
        assert len(list(ahead)) == 100
        seen = [event.body["n"] for _, event in zip(range(5), early, strict=False)]
        store.streams.replace("s/x", between=(40, 50), with_=rows(("k1", 45, 1000)))
        for reader in (ahead, early):
            assert reader.skip_truncated() == 0
        assert list(ahead) == []
        rest = [event.body["n"] for event in early]
        assert sorted([*seen, *rest]) == [*range(40), *range(50, 100), 1000]


# how well a cut parts


def test_misplaced_events_of_a_cut_are_counted(store: Store) -> None:
    make(store)
    write(store, rows(*(("k", time, n) for n, time in enumerate([1, 2, 9, 3, None, 4, 8, 12]))))
    found = store.streams.misplaced("s/x", 5)
    assert found.cut == store.cuts.at("s/x", 5, by="event")
    assert (found.before_cut, found.after_cut) == (0, 2)
    assert store.streams.misplaced("s/x", 5, cut=ab.TAIL).before_cut == 3
    assert store.streams.misplaced("s/x", 5, cut=ab.HEAD).after_cut == 4
    assert (lambda m: (m.before_cut, m.after_cut))(store.streams.misplaced("s/x", 1)) == (0, 0)
    store.compact(force=True)
    assert store.streams.misplaced("s/x", 5) == found


def test_the_cut_and_stitch_that_it_stands_in_for_doubles_and_drops(store: Store) -> None:
    """Why it is there: places parted by time are no filter where events came late."""
    make(store)
    write(store, rows(*(("k", time, time) for time in [1, 2, 5, 3, 6, 4, 7, 9, 8])))
    start, end = (store.cuts.at("s/x", time, by="event") for time in (4, 7))
    stitched = [ab.StreamRange("s/x", end=start), ab.StreamRange("s/x", start=end)]
    store.streams.stitch(stitched, into="s/wrong")
    assert sorted(numbers(store, "s/wrong")) != [1, 2, 3, 7, 8, 9]
    assert store.streams.misplaced("s/x", 4).after_cut > 0
    store.streams.replace("s/x", between=(4, 7), with_=None)
    assert numbers(store) == [1, 2, 3, 7, 9, 8]
