"""The latest event of each key: a stream read as a table."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import InvalidArgument, StreamNotFound, TooLarge
from anabranch.store import Store
from tests.parameters import rest_is_slow

COLUMNS = pa.schema(
    [("device", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("text", pa.string())]
)
KEYS = [f"k{n}" for n in range(12)]


@pytest.fixture
def made(store: Store) -> Store:
    store.scopes.create("s", exist_ok=True)
    store.streams.create("s/a", schema=COLUMNS, key="device", time="at", scaling=3)
    return store


def write(store: Store, rows: list[dict[str, Any]], stream: str = "s/a") -> None:
    with store.writer(stream) as writer:
        writer.write_batch(table(store, [{"at": row["n"], **row} for row in rows], stream))


def table(store: Store, rows: list[dict[str, Any]], stream: str = "s/a") -> pa.Table:
    return pa.Table.from_pylist(rows, schema=store.streams.get(stream).schema.columns)


def expected(store: Store, stream: str = "s/a") -> dict[str, Any]:
    """By reading all of it."""
    with store.reader(stream) as reader:
        return {event.key: (event.body, event.pointer, event.appended_us) for event in reader if event.key is not None}


def check(store: Store, stream: str = "s/a") -> None:
    found = {key: store.latest(stream, key) for key in [*KEYS, "never"]}
    there = {key: (e.body, e.pointer, e.appended_us) for key, e in found.items() if e is not None}
    assert there == expected(store, stream)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int64(), {-5: "-5", 2**40: "1099511627776"}),
        (pa.uint64(), {2**64 - 1: "18446744073709551615"}),
        (pa.bool_(), {True: "true", False: "false"}),
        (pa.date32(), {date(2026, 1, 31): "2026-01-31"}),
        (pa.date64(), {date(2026, 1, 31): "2026-01-31"}),
        (pa.large_string(), {"é": "é"}),
    ],
)
@pytest.mark.parametrize("count", [1, 600])
def test_a_key_that_is_no_text_is_found_by_its_value_and_by_its_text(
    store: Store, kind: pa.DataType, keys: dict[Any, str], count: int
) -> None:
    store.scopes.create("s", exist_ok=True)
    store.streams.create("s/typed", schema=pa.schema([("key", kind), ("n", pa.int64())]), key="key")
    with store.writer("s/typed") as writer:
        rows = [{"key": key, "n": n} for n in range(count) for key in keys]
        writer.write_batch(pa.Table.from_pylist([*rows, {"key": None, "n": 0}], schema=writer._schema.columns))
    for key, text in keys.items():
        for given in (key, text):
            found = store.latest("s/typed", given)
            assert found is not None and (found.key, found.body["n"]) == (key, count - 1)
    assert store.latest("s/typed", "never") is None and store.latest("s/typed", None) is None


def test_the_last_event_of_a_key_is_found_as_soon_as_it_is_durable(made: Store) -> None:
    assert made.latest("s/a", "k1") is None
    write(made, [{"device": key, "n": n, "text": "x"} for n in range(3) for key in KEYS[:6]])
    check(made)
    with made.writer("s/a") as writer:
        for n in range(20):
            pointer = writer.write({"device": "k1", "at": None, "n": n, "text": None}).result()
            found = made.latest("s/a", "k1")
            assert found is not None and (found.pointer, found.body["n"], found.key) == (pointer, n, "k1")
    check(made)


@pytest.mark.parametrize("seed", rest_is_slow(range(12)))
def test_whatever_happens_to_a_stream_its_table_is_what_reading_it_gives(
    made: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(limits, "LATEST_COMPACT_BYTES", 2_000)  # so that it is compacted all the time
    rng, n = random.Random(seed), 0
    for _ in range(40):
        match rng.choice(["write"] * 5 + ["scale", "truncate", "compact", "replace", "column", "rename", "nulls"]):
            case "write":
                rows = [
                    {"device": rng.choice(KEYS), "n": (n := n + 1), "text": "x" * rng.randrange(40)} for _ in range(30)
                ]
                write(made, rows)
            case "nulls":
                write(made, [{"device": None, "n": 0, "text": ""}])
            case "scale":
                made.streams.scale("s/a", rng.randrange(1, 5))
            case "truncate":
                made.streams.truncate("s/a", made.cuts.after("s/a", events=rng.randrange(1, 60)))
            case "compact":
                made.compact("s/a")
            case "replace" if n:
                low = rng.randrange(n)
                rows = [{"device": rng.choice(KEYS), "at": low, "n": -1, "text": "new"} for _ in range(3)]
                made.streams.replace("s/a", between=(low, low + 9), with_=table(made, rows))
            case "column":
                columns = made.streams.get("s/a").schema.columns
                made.streams.add_columns("s/a", {f"c{len(columns)}": pa.int64()})
            case "rename":
                made.streams.rename("s/a", "s/b")
                check(made, "s/b")
                made.streams.rename("s/b", "s/a")
        if rng.random() < 0.6:
            check(made)
    check(made)


def test_raw_events_have_keys_too(store: Store) -> None:
    store.scopes.create("s", exist_ok=True)
    store.streams.create("s/raw", scaling=2)
    with store.writer("s/raw") as writer:
        writer.write(b"1", key="a")
        writer.write(b"2", key="a")
        writer.write(b"3")
    found = store.latest("s/raw", "a")
    assert found is not None and (found.body, found.key) == (b"2", "a")
    assert store.latest("s/raw", "b") is None


def test_what_has_no_table_is_said_in_one_line(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made.streams.create("s/keyless", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(InvalidArgument, match="'s/keyless' has no key column"):
        made.latest("s/keyless", "a")
    with pytest.raises(StreamNotFound):
        made.latest("s/none", "a")
    monkeypatch.setattr(limits, "LATEST_COMPACT_BYTES", 0)
    monkeypatch.setattr(limits, "LATEST_BYTES_MAX", 1_000)
    write(made, [{"device": key, "n": 1, "text": "x" * 500} for key in KEYS])
    with pytest.raises(TooLarge, match="the table of the latest events of 's/a'"):
        made.latest("s/a", "k1")
    monkeypatch.undo()
    check(made)


def test_tables_of_streams_that_were_asked_for_long_ago_are_given_up(
    made: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LATEST_STREAMS_MAX", 2)
    for name in ("s/1", "s/2", "s/3"):
        made.streams.create(name, schema=COLUMNS, key="device")
        write(made, [{"device": "k1", "n": 1, "text": name}], name)
    for name in ("s/1", "s/2", "s/3", "s/1"):
        found = made.latest(name, "k1")
        assert found is not None and found.body["text"] == name


@pytest.mark.parametrize("seed", range(3))
def test_of_events_that_were_appended_together_the_newest_may_count(
    made: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(limits, "LATEST_COMPACT_BYTES", 2_000)
    rng = random.Random(seed)
    for _ in range(15):
        rows = [
            {"device": rng.choice(KEYS), "at": rng.choice([None, *range(20)]), "n": rng.randrange(1_000), "text": "x"}
            for _ in range(rng.randrange(1, 60))
        ]
        write(made, rows)
        newest: dict[str, tuple[Any, ...]] = {}
        with made.reader("s/a") as reader:
            for event in reader:
                at = -1 if event.body["at"] is None else event.body["at"].timestamp()
                found = (event.appended_us, at, event.pointer)
                newest[event.key] = max(
                    found, newest.get(event.key, found), key=lambda each: each[:2] + (each[2].offset,)
                )
        for key in KEYS:
            one = made.latest("s/a", key, by_time=True)
            assert (None if one is None else one.pointer) == (newest[key][2] if key in newest else None)
        check(made)
