"""Properties of reading files: two ways to understand a line give one answer, and what was printed is read back."""

from __future__ import annotations

import io
import json
import math
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.cli.formats import TimeUnit
from anabranch.cli.intake import csv_records, json_lines
from anabranch.cli.intake.batch import BadRow, IntakeBatch, all_valid
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import NotATime, TimeReading
from anabranch.cli.render.json_lines import json_rows
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules

SCHEMA = StreamSchema.typed(
    pa.schema(
        [
            ("s", pa.string()),
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("b", pa.bool_()),
            ("t", TIME_TYPE),
            ("d", pa.date32()),
            ("x", pa.binary()),
            ("n", pa.decimal128(30, 10)),
            ("l", pa.list_(pa.float64())),
            ("r", pa.struct([("i", pa.int64()), ("l", pa.list_(pa.string()))])),
        ]
    )
)
EPOCH = datetime.fromisoformat("1970-01-01")  # without a zone, as the moments are
MOMENTS = st.datetimes(EPOCH.replace(year=1700), EPOCH.replace(year=2200))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
ROW = st.fixed_dictionaries(
    {},
    optional={
        "s": st.none() | TEXT,
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(),
        "b": st.none() | st.booleans(),
        "t": st.none() | MOMENTS.map(lambda t: t.isoformat() + "Z"),
        "d": st.none() | st.dates().map(str),
        "x": st.none() | TEXT,
        "n": st.none() | st.integers(-(10**20) + 1, 10**20 - 1) | st.decimals(-99, 99, places=10).map(str),
        "l": st.none()
        | st.lists(
            st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False), max_size=3
        ),
        "r": st.none()
        | st.fixed_dictionaries({}, optional={"i": st.integers(-(2**63), 2**63 - 1), "l": st.lists(TEXT, max_size=2)}),
    },
)


class Bytes:
    """A source of given pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def idle(self) -> bool:
        return True


def blocks(*pieces: bytes, quoted: bool = False) -> LineBlocks:
    source: Any = Bytes(*pieces)
    return LineBlocks(source, quoted=quoted)


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), st.booleans())
def test_both_ways_to_understand_json_agree(rows: list[dict[str, Any]], escaped: bool) -> None:
    lines = Lines("\n".join(json.dumps(row, ensure_ascii=escaped) for row in rows).encode(), 1)
    fast = json_lines._fast(lines, SCHEMA)
    slow = pa.concat_tables(all_valid(json_lines._slow(lines, TargetColumns(SCHEMA))))
    assert fast is None or repr(fast.to_pylist()) == repr(slow.to_pylist())
    assert slow.num_rows == len(rows)
    for row, read in zip(rows, slow.to_pylist(), strict=True):
        # As texts: NaN is not equal to itself.
        assert repr({name: row.get(name) for name in "sifb"}) == repr({name: read[name] for name in "sifb"})


DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
LEAVES: list[tuple[pa.DataType, int, int]] = [
    (pa.int64(), -(2**63), 2**63 - 1),
    (pa.decimal128(22, 2), -(10**18), 10**18),
    (pa.date32(), -719_162, 2_932_896),
    (TIME_TYPE, -62_135_596_800_000_000, 253_402_300_799_999_999),
    *((pa.time32(unit), 0, DAY[unit] - 1) for unit in ("s", "ms")),
    *((pa.time64(unit), 0, DAY[unit] - 1) for unit in ("us", "ns")),
    *((pa.duration(unit), -30_000 * DAY[unit], 30_000 * DAY[unit]) for unit in DAY),
]


def nested(values: pa.Array, how: str) -> pa.Array:
    """A column with these three values in it."""
    match how:
        case "list":
            return pa.ListArray.from_arrays([0, 1, 3], values)
        case "map":
            return pa.MapArray.from_arrays([0, 1, 3], pa.array(["a", "b", "é"]), values)
        case "keys":
            return pa.MapArray.from_arrays([0, 1, 3], values, pa.array([1, None, 3]))
        case "struct":
            return pa.StructArray.from_arrays([values, values], ["a", "b"])
    return values


@settings(deadline=None)
@given(st.data(), st.sampled_from(LEAVES), st.sampled_from(["", "list", "map", "keys", "struct"]))
def test_what_is_printed_is_read_back(data: st.DataObject, leaf: tuple[pa.DataType, int, int], how: str) -> None:
    kind, least, most = leaf
    number = st.integers(least, most) if how == "keys" else st.none() | st.integers(least, most)
    numbers = data.draw(st.lists(number, min_size=3, max_size=3))
    plain = pa.array(numbers, pa.int32() if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")) else pa.int64())
    column = nested(plain.cast(kind), how)
    column = pa.concat_arrays([column, pa.nulls(1, column.type)])
    lines = Lines("\n".join(json_rows(pa.record_batch({"x": column}))).encode(), 1)
    target = TargetColumns(StreamSchema.typed(pa.schema([("x", column.type)])))
    found = pa.concat_tables(all_valid(json_lines._slow(lines, target, TimeReading(TimeRules("UTC")))))
    assert found.column("x").combine_chunks().equals(column)


# Each fits its column, or none of them does: both ways must say the same.
AT_THE_EDGE = [
    *('{"n": 1.239}', '{"n": 1e30}', '{"n": "x"}', '{"n": true}', '{"n": 12345678901234567890123}', '{"n": 1.5e-3}'),
    *('{"l": [18446744073709551615]}', '{"l": ["NaN"]}', '{"l": [true]}', '{"l": 1}', '{"l": [1e400]}', '{"l": [[1]]}'),
    *(
        '{"r": {"i": 1, "z": 2}}',
        '{"r": {"i": 1.5}}',
        '{"r": {"i": "1"}}',
        '{"r": []}',
        '{"r": {"l": [1]}}',
        '{"r": 1}',
    ),
    *(
        '{"i": 1, "i": 2}',
        '{"i": 1.0}',
        '{"i": 1e2}',
        '{"f": 1e400}',
        '{"f": 9007199254740993}',
        '{"b": 1}',
        '{"t": "1970-01-01T01:00:00Z"}',
        "null",
        "[]",
    ),
]


@pytest.mark.parametrize("text", AT_THE_EDGE)
def test_what_arrow_accepts_is_what_one_line_accepts(text: str) -> None:
    lines = Lines(text.encode(), 1)
    fast = json_lines._fast(lines, SCHEMA)
    slow = list(json_lines._slow(lines, TargetColumns(SCHEMA)))
    if fast is not None:
        assert [fast.to_pylist()] == [item.rows.to_pylist() for item in slow if isinstance(item, IntakeBatch)]


@pytest.mark.parametrize("value", ["5", "1.5", "true", "[]", '{"a": 1}', '"é"', '"Yg="'])
def test_base64_that_is_no_text_of_it_is_refused(value: str) -> None:
    (refused,) = json_lines._slow(Lines(f'{{"x_base64": {value}}}'.encode(), 1), TargetColumns(SCHEMA))
    assert isinstance(refused, BadRow) and "base64" in refused.why


def test_a_text_that_is_no_decimal_is_quoted() -> None:
    (refused,) = json_lines._slow(
        Lines(b'{"price": "1,5"}', 1), TargetColumns(StreamSchema.typed(pa.schema([("price", pa.decimal128(5, 2))])))
    )
    assert isinstance(refused, BadRow) and refused.why.endswith("'1,5' is not a number")


def test_bytes_as_text_and_as_base64_in_one_line_are_refused() -> None:
    texts = ['{"x": "a", "x_base64": "Yg=="}', '{"x": null, "x_base64": "Yg=="}', '{"x": "a", "x_base64": null}']
    refused, read = json_lines._slow(Lines("\n".join(texts).encode(), 1), TargetColumns(SCHEMA))
    assert isinstance(refused, BadRow) and "either 'x' or 'x_base64'" in refused.why
    assert isinstance(read, IntakeBatch) and read.rows.column("x").to_pylist() == [b"b", b"a"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(['{"i": 1}', '{"i": "x"}', "{", "", '{"f": "NaN"}', '{"nope": 1}']), max_size=150))
def test_every_line_is_read_or_named_in_its_order(texts: list[str]) -> None:
    found: list[tuple[int, bool]] = []
    source = blocks("\n".join(texts).encode())
    for item in json_lines.read_json_lines(source, TargetColumns(SCHEMA), TimeReading(), infer=refuse):
        if isinstance(item, BadRow):
            found.append((item.number, False))
            assert item.text == texts[item.number - 1].encode()
        else:
            found += [(item.number(row), True) for row in range(item.rows.num_rows)]
    good = ('{"i": 1}', '{"f": "NaN"}')
    assert found == [(n, text in good) for n, text in enumerate(texts, 1) if text]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["1,a", "x,a", "2", '3,"a\nb"', 'y,"a\n\nb"', "", "4,5,6"]), max_size=60))
def test_every_record_is_read_or_named_in_its_order(texts: list[str]) -> None:
    schema = StreamSchema.typed(pa.schema([("i", pa.int64()), ("s", pa.string())]))
    found: list[tuple[int, bool]] = []
    source = blocks(("i,s\n" + "\n".join(texts)).encode(), quoted=True)
    for item in csv_records.read_csv_records(source, TargetColumns(schema), delimiter=","):
        if isinstance(item, BadRow):
            found.append((item.number, False))
        else:
            found += [(item.number(row), True) for row in range(item.rows.num_rows)]
    line, expected = 2, []
    for text in texts:
        if text:
            expected.append((line, text in ("1,a", '3,"a\nb"')))
        line += 1 + text.count("\n")
    assert found == expected


def refuse(lines: Lines) -> pa.Schema:
    raise AssertionError(f"no column is to be added: {lines.data!r}")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | TEXT, st.none() | st.integers(-9, 9)), max_size=20), st.sampled_from(["\n", "\r\n"])
)
def test_csv_that_arrow_wrote_is_read_back(rows: list[tuple[str | None, int | None]], end: str) -> None:
    schema = StreamSchema.typed(pa.schema([("s", pa.string()), ("i", pa.int64())]))
    table = pa.table(
        [pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.int64())], schema=schema.columns
    )
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink, pa.csv.WriteOptions(eol=end))
    data = sink.getvalue()
    pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
    read = csv_records.read_csv_records(blocks(*pieces, quoted=True), TargetColumns(schema), delimiter=",")
    assert pa.concat_tables([schema.columns.empty_table(), *all_valid(read)]).to_pylist() == table.to_pylist()


@given(st.binary(max_size=200), st.integers(1, 20), st.booleans())
def test_blocks_lose_nothing_and_count_their_lines(data: bytes, size: int, quoted: bool) -> None:
    data = data.removeprefix(b"\xef\xbb\xbf")
    line, whole = 1, b""
    for block in blocks(*[data[i : i + size] for i in range(0, len(data), size)], quoted=quoted):
        assert block.first == line
        line += block.count
        whole += block.data
    assert whole == data


@given(st.lists(st.none() | MOMENTS, max_size=6), st.integers(0, 3))
def test_times_of_every_form_are_understood(times: list[datetime | None], form: int) -> None:
    def text(time: datetime) -> str:
        match form:
            case 0:
                return time.isoformat()
            case 1:
                return time.isoformat(" ") + "Z"
            case 2:
                return (time + timedelta(hours=2)).isoformat() + "+02:00"
            case _:
                return str((time - EPOCH) // timedelta(microseconds=1))

    texts = pa.chunked_array([pa.array([None if time is None else text(time) for time in times], pa.string())])
    read = TimeReading(unit=TimeUnit.us).column(texts, TIME_TYPE).to_pylist()
    assert read == [None if time is None else time.replace(tzinfo=UTC) for time in times]


def test_a_number_is_cut_to_the_time_before_it() -> None:
    reading = TimeReading(unit=TimeUnit.ns, rules=TimeRules(truncate=True))
    assert [reading.micros(each) for each in (-1_001, -1_000, -1, 0, 999, 1_000)] == [-2, -1, -1, 0, 0, 1]
    column = reading.column(pa.chunked_array([[-1, None]]), TIME_TYPE)
    assert column.cast(pa.int64()).to_pylist() == [-1, None]


def test_what_is_no_time_is_named() -> None:
    with pytest.raises(NotATime) as caught:
        TimeReading().column(pa.chunked_array([["2026-01-01", "2026-01-01T00:00Z", "soon"]]), TIME_TYPE)
    assert caught.value.row == 2


def test_a_line_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.cli.intake.source.LINE_BYTES_MAX", 16 << 20)
    with pytest.raises(BadInput) as caught:
        list(blocks(b"a\n", *[b"x" * (1 << 20)] * 40))
    assert caught.value.place == "line 2"


def test_a_quote_that_is_never_closed_costs_no_more_than_reading_the_file() -> None:
    started = time.process_time()
    whole = b'a,b\n1,5" pipe\n' + b"1,2,3,4,5,6,7\n" * 1_500_000
    pieces = [whole[at : at + (1 << 18)] for at in range(0, len(whole), 1 << 18)]
    assert sum(block.count for block in blocks(*pieces, quoted=True)) == 1_500_002
    assert time.process_time() - started < 10  # it took hours


@pytest.mark.parametrize("blank", ["", " ", "\t", "\r", " \t "])
@pytest.mark.parametrize("first", [True, False])
def test_two_objects_on_a_line_are_refused_also_beside_a_blank_line(blank: str, first: bool) -> None:
    lines = [blank, '{"i": 1} {"i": 2}'] if first else ['{"i": 1} {"i": 2}', blank]
    block = Lines("\n".join([*lines, '{"i": 3}']).encode(), 1)
    assert json_lines._fast(block, SCHEMA) is None
    (bad,) = [each for each in json_lines._slow(block, TargetColumns(SCHEMA)) if isinstance(each, BadRow)]
    assert "it is not JSON: Extra data" in bad.why


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.map_(pa.string(), pa.int64()), "[null]"),
        (pa.map_(pa.string(), pa.int64()), '[["a", 1, 2]]'),
        (pa.map_(pa.string(), pa.int64()), '""'),
        (pa.struct([("a", pa.int64())]), "[]"),
        (pa.struct([("a", pa.int64())]), '""'),
        (pa.duration("us"), '"soon"'),
        (pa.duration("us"), '""'),
        (pa.duration("us"), '"P"'),
        (pa.duration("us"), '"PT0.0000001S"'),
        (pa.time64("us"), '"01:02:03.0000001"'),
        (pa.time64("us"), '"01:02:03Z"'),
        (pa.list_(pa.date32()), '["2026-02-30"]'),
    ],
)
def test_what_is_no_value_of_a_nested_type_or_a_duration_is_named(kind: pa.DataType, text: str) -> None:
    target = TargetColumns(StreamSchema.typed(pa.schema([("x", kind)])))
    (bad,) = json_lines._slow(Lines(f'{{"x": {text}}}'.encode(), 1), target)
    assert isinstance(bad, BadRow) and "column 'x' takes" in bad.why


def records(kind: pa.DataType, text: str) -> list[IntakeBatch | BadRow]:
    target = TargetColumns(StreamSchema.typed(pa.schema([("a", pa.int64()), ("x", kind)])))
    data = f'a,x\n1,"{text}"\n2,\n'.encode()
    return list(csv_records.read_csv_records(blocks(data), target, delimiter=","))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.duration("us"), "1 day, 2:03:04.000005", timedelta(1, 4, 5, 0, 3, 2)),
        (pa.duration("us"), "-1 day, 23:59:59.999999", timedelta(microseconds=-1)),
        (pa.duration("s"), "-P1DT3S", -timedelta(1, 3)),
        (pa.duration("ms"), "5", timedelta(milliseconds=5)),
        (pa.float16(), "1.5", 1.5),
        (pa.float16(), "-inf", -math.inf),
        (pa.decimal256(50, 3), "1.5", Decimal("1.500")),
    ],
)
def test_csv_holds_durations_and_wide_and_narrow_numbers(kind: pa.DataType, text: str, value: object) -> None:
    assert [row["x"] for row in pa.concat_tables(all_valid(records(kind, text))).to_pylist()] == [value, None]


def test_csv_keeps_nanoseconds_of_durations() -> None:
    (table,) = all_valid(records(pa.duration("ns"), "-PT1.000000001S"))
    assert table.column("x").cast(pa.int64()).to_pylist() == [-1_000_000_001, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.duration("us"), "soon"),
        (pa.duration("s"), "0:00:00.5"),
        (pa.duration("us"), "9" * 19),
        (pa.float16(), "70000"),
        (pa.float16(), "2049"),
        (pa.float16(), "x"),
        (pa.decimal256(50, 3), "1.2345"),
    ],
)
def test_what_a_column_of_csv_can_not_hold_is_named(kind: pa.DataType, text: str) -> None:
    bad, good = records(kind, text)
    assert isinstance(bad, BadRow) and f"column 'x' takes {kind}: " in bad.why
    assert isinstance(good, IntakeBatch)
