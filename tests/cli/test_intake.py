"""Properties of reading files: two ways to understand a line give one answer, and what was printed is read back."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.cli.formats import TimeUnit
from anabranch.cli.intake import csv_records, json_lines
from anabranch.cli.intake.source import BadInput, LineBlocks, Lines
from anabranch.cli.intake.times import NotATime, TimeReading
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema

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
    slow = pa.concat_tables(batch.rows for batch in json_lines._slow(lines, SCHEMA))
    assert fast is None or repr(fast.to_pylist()) == repr(slow.to_pylist())
    assert slow.num_rows == len(rows)
    for row, read in zip(rows, slow.to_pylist(), strict=True):
        # As texts: NaN is not equal to itself.
        assert repr({name: row.get(name) for name in "sifb"}) == repr({name: read[name] for name in "sifb"})


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
    read = [batch.rows for batch in csv_records.read_csv_records(blocks(*pieces, quoted=True), schema, delimiter=",")]
    assert pa.concat_tables([schema.columns.empty_table(), *read]).to_pylist() == table.to_pylist()


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


def test_what_is_no_time_is_named() -> None:
    with pytest.raises(NotATime) as caught:
        TimeReading().column(pa.chunked_array([["2026-01-01", "2026-01-01T00:00Z", "soon"]]), TIME_TYPE)
    assert caught.value.row == 2


def test_a_line_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.cli.intake.source.LINE_BYTES_MAX", 16 << 20)
    with pytest.raises(BadInput) as caught:
        list(blocks(b"a\n", *[b"x" * (1 << 20)] * 40))
    assert caught.value.place == "line 2"
