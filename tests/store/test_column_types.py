"""Every Arrow type is either refused when a stream is made, or comes through all that happens to events exactly."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.store import Store

_WHEN = 1_767_323_045_678_901  # µs


def _of(kind: pa.DataType, *values: int) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind)


HELD: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), [True, None]),
    *[(kind, [0, 100]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())],
    (pa.int64(), [-(2**63), 2**63 - 1]),
    *[(kind, [0, 2**kind.bit_width - 1]) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())],
    *[(kind, [1.5, float("inf")]) for kind in (pa.float16(), pa.float32(), pa.float64())],
    *[
        (kind, [Decimal("-1.23"), None])
        for kind in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(38, 10), pa.decimal256(76, 10))
    ],
    (pa.decimal128(3, 0), [Decimal(999), None]),
    (pa.decimal128(3, 3), [Decimal("0.999"), None]),
    (pa.date32(), [dt.date(2026, 1, 1), dt.date(1, 1, 1)]),
    (pa.date64(), [dt.date(2026, 1, 1), None]),
    (pa.time32("s"), [dt.time(1, 2, 3), None]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4000), None]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4567), None]),
    (pa.time64("ns"), _of(pa.time64("ns"), 1_234_567_891, 1)),
    *[
        (pa.timestamp(unit, zone), _of(pa.timestamp(unit, zone), _WHEN // 10**6 * 10**scale, 0))
        for unit, scale in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
        for zone in (None, "UTC", "Europe/Berlin")
    ],
    *[(pa.duration(unit), _of(pa.duration(unit), 1_234_567, -1)) for unit in ("s", "ms", "us", "ns")],
    *[(kind, [b"\x00\xff", b""]) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())],
    (pa.binary(3), [b"abc", None]),
    (pa.binary(0), [b"", None]),
    *[(kind, ["ä\x00", ""]) for kind in (pa.string(), pa.large_string(), pa.string_view())],
    (pa.dictionary(pa.int8(), pa.string()), ["a", None]),
    *[(kind, [[1, None], None]) for kind in (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2))],
    (pa.list_(pa.field("element", pa.int8(), nullable=False)), [[1], []]),
    (pa.list_(pa.list_(pa.time32("s"))), [[[dt.time(1, 2, 3)], None], None]),
    (pa.list_(pa.float16()), [[1.5], None]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1), ("b", None)], None]),
    (pa.map_(pa.struct([("a", pa.int8())]), pa.duration("ns")), [[({"a": 1}, dt.timedelta(1))], []]),
    (pa.struct([("a", pa.int8()), ("b.c", pa.string())]), [{"a": 1, "b.c": "x"}, None]),
    (pa.struct([pa.field("a", pa.list_(pa.decimal256(50, 3)), nullable=False)]), [{"a": [Decimal("1.234")]}, None]),
]

_SCALED = pa.decimal128(5, -2)
REFUSED: list[pa.DataType] = [
    pa.null(),
    *[kind(5, -2) for kind in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)],
    pa.decimal128(3, 5),
    pa.decimal256(40, 41),
    pa.list_(_SCALED),
    pa.list_(_SCALED, 2),
    pa.map_(pa.string(), _SCALED),
    pa.struct([("a", pa.list_(_SCALED))]),
    pa.dictionary(pa.int8(), _SCALED),
    pa.month_day_nano_interval(),
    pa.list_view(pa.int8()),
    pa.large_list_view(pa.int8()),
    pa.list_(pa.null()),
    pa.map_(pa.string(), pa.null()),
    pa.struct([]),
    pa.list_(pa.struct([])),
    pa.struct([("a", pa.int8()), ("a", pa.int8())]),
    pa.struct([("", pa.int8())]),
    pa.run_end_encoded(pa.int32(), pa.int8()),
    pa.sparse_union([pa.field("a", pa.int8())]),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.uuid(),
    pa.json_(),
    pa.bool8(),
    pa.opaque(pa.int8(), "a", "b"),
    pa.fixed_shape_tensor(pa.int8(), [2]),
    pa.list_(pa.uuid()),
]


def test_no_type_of_arrow_is_left_out() -> None:
    """All type ids of this pyarrow but for two that no value of its own has: the intervals that it can't make."""
    known = {value for name, value in vars(pa.lib).items() if name.startswith("Type_")}
    seen = {kind.id for kind, _ in HELD} | {kind.id for kind in REFUSED}
    assert known - seen <= {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME}


def rows(store: Store, name: str) -> pa.Table:
    with store.reader(name) as reader:
        batches = [batch.select(["id", "v"]) for batch in reader.batches()]
    return pa.Table.from_batches(batches).combine_chunks().sort_by("id")


@pytest.mark.parametrize(("kind", "values"), HELD, ids=[str(kind) for kind, _ in HELD])
def test_a_type_that_is_taken_comes_through_everything(tmp_path: Path, kind: pa.DataType, values: Any) -> None:
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    table = pa.table({"id": [1, 2], "v": array})
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/x", schema=table.schema, key="id")
        with store.writer("s/x") as writer:
            writer.write_batch(table).result()
        read = rows(store, "s/x")
        wanted = pa.chunked_array([array]).cast(read.schema.field("v").type)
        assert read.column("v").equals(wanted)
        report = store.compact(force=True)
        assert (report.files, report.skipped) == (1, ())
        assert rows(store, "s/x").equals(read)
        store.archives.create("s/x", tmp_path / "archive")
        store.archives.import_(tmp_path / "archive", as_="s/imported")
        assert rows(store, "s/imported").equals(read)
        store.archives.attach(tmp_path / "archive", as_="s/attached")
        assert rows(store, "s/attached").equals(read)
        assert [str(each) for each in store.check()] == []
        store.streams.create("s/later", schema=pa.schema([("id", pa.int64())]))
        store.streams.evolve("s/later", table.schema)
        assert store.streams.get("s/later").schema.columns == store.streams.get("s/x").schema.columns


@pytest.mark.parametrize("kind", REFUSED, ids=map(str, REFUSED))
def test_a_type_that_can_not_come_through_is_refused_when_a_stream_is_made_or_changed(kind: pa.DataType) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        columns = pa.schema([("id", pa.int64()), ("odd", kind)])
        with pytest.raises(InvalidArgument, match=r"column 'odd': type .* is not supported"):
            store.streams.create("s/x", schema=columns)
        assert not store.streams.exists("s/x")
        store.streams.create("s/x", schema=pa.schema([("id", pa.int64())]))
        with pytest.raises(InvalidArgument, match=r"column 'odd': type .* is not supported"):
            store.streams.evolve("s/x", columns)
