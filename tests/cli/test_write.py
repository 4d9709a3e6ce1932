"""Writing files of every format, and what becomes of one with a wrong line."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import limits
from anabranch.cli.intake import source
from anabranch.runtime.settings import Settings
from anabranch.store import connect
from tests.cli.kit import CSV, SCHEMA, Line, column

TABLE = pa.table(
    {
        "device": ["a", "b", "a"],
        "at": pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us", "UTC")),
        "celsius": [1.5, 2.5, 3.5],
    }
)
JSONL = "".join(
    json.dumps({"device": d, "at": f"1970-01-01T00:00:0{i}Z", "celsius": c}) + "\n"
    for i, (d, c) in enumerate([("a", 1.5), ("b", 2.5), ("a", 3.5)])
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, so that small files have many."""
    monkeypatch.setattr(source, "BLOCK_BYTES", 64)
    monkeypatch.setattr(source, "_READ_BYTES", 48)


def make(folder: Path, kind: str) -> Path:
    """The same three events in a file of some format."""
    path = folder / f"events.{kind}"
    match kind:
        case "csv":
            path.write_text(CSV.replace("2026-01-01", "1970-01-01"))
        case "tsv":
            path.write_text(CSV.replace("2026-01-01", "1970-01-01").replace(",", "\t"))
        case "csv.gz":
            path.write_bytes(gzip.compress(CSV.replace("2026-01-01", "1970-01-01").encode()))
        case "jsonl":
            path.write_text(JSONL)
        case "parquet":
            pq.write_table(TABLE, path)
        case "arrows":
            with pa.ipc.new_stream(path, TABLE.schema) as stream:
                stream.write_table(TABLE)
        case "arrow":
            with pa.ipc.new_file(path, TABLE.schema) as file:
                file.write_table(TABLE)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "jsonl", "parquet", "arrows", "arrow"])
def test_a_file_makes_its_stream_and_fills_it(line: Line, tmp_path: Path, kind: str) -> None:
    told = line("write", "iot/m", "--create", make(tmp_path, kind), "--key", "device", "--time", "at", "--json").json
    assert (told["events"], told["created"]) == (3, True)
    shown = line("stream", "show", "iot/m", "--json").json
    assert told["tail"] == shown["tail"]
    assert [c["type"] for c in shown["columns"]] == ["string", "timestamp[us, tz=UTC]", "double"]
    assert line("read", "iot/m").rows == [
        {"device": "a", "at": "1970-01-01T00:00:00.000000Z", "celsius": 1.5},
        {"device": "b", "at": "1970-01-01T00:00:01.000000Z", "celsius": 2.5},
        {"device": "a", "at": "1970-01-01T00:00:02.000000Z", "celsius": 3.5},
    ]
    again = line("write", "iot/m", "--create", make(tmp_path, kind), "--json").json
    assert (again["events"], again["created"]) == (3, False)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_what_was_read_can_be_written_again(sensors: Line, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        sensors("write", "iot/sensors", "--create", make(tmp_path, kind))
    rows = sensors("read", "iot/sensors").rows
    if kind == "parquet":
        table = pa.Table.from_pylist(rows).append_column("_offset", pa.array(range(6)))
        pq.write_table(table, tmp_path / "again.parquet")
    else:
        sensors("read", "iot/sensors", "--format", kind, "--meta", "--output", tmp_path / f"again.{kind}")
    sensors(
        "write",
        "iot/copy",
        "--create",
        tmp_path / f"again.{kind}",
        "--schema",
        SCHEMA,
        "--key",
        "device",
        "--time",
        "at",
    )
    assert sensors("read", "iot/copy").rows == rows


@pytest.mark.parametrize("given", ["\\t", "tab", "\t"])
def test_tabs_are_a_delimiter(line: Line, tmp_path: Path, given: str) -> None:
    data = make(tmp_path, "tsv").read_bytes()
    line("write", "iot/m", "--create", "--format", "csv", "--delimiter", given, stdin=data)
    (tmp_path / "m.tab").write_bytes(data)
    line("write", "iot/m", tmp_path / "m.tab")
    assert column(line("read", "iot/m").rows, "celsius") == [1.5, 2.5, 3.5] * 2


def test_lines_make_a_raw_stream(line: Line, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes("one\r\n\nthrée\n".encode() + b"\xff\x00")
    line("write", "logs/app", "--create", tmp_path / "app.log")
    rows = line("read", "logs/app").rows
    assert [row.get("payload") for row in rows] == ["one", "", "thrée", None]
    assert rows[3]["payload_base64"] == "/wA="
    assert all(row["time"] is not None and row["key"] is None for row in rows)


def test_a_raw_stream_takes_its_own_columns_from_json(sensors: Line) -> None:
    told = '{"key":"k","time":"2026-01-01","payload":"text"}\n{"key":null,"payload_base64":"/wA=","_pointer":"x"}\n'
    sensors("write", "iot/raw", "--create", "--format", "jsonl", stdin=told)
    rows = sensors("read", "iot/raw").rows
    assert rows[0] == {"key": "k", "time": "2026-01-01T00:00:00.000000Z", "payload": "text"}
    assert rows[1]["payload_base64"] == "/wA="


def test_stdin_is_taken_for_what_the_stream_suggests(sensors: Line) -> None:
    sensors("write", "iot/sensors", "--create", "-", stdin='{"device":"z"}\n')
    sensors("write", "iot/raw", "--create", stdin='{"device":"z"}\n')
    sensors("write", "iot/new", "--create", stdin='\n{"device":"z"}\n')
    sensors("write", "iot/newraw", "--create", stdin="plain\n")
    assert sensors("read", "iot/sensors").rows[-1]["device"] == "z"
    assert column(sensors("read", "iot/raw").rows, "payload") == ['{"device":"z"}']
    assert sensors("read", "iot/new").rows == [{"device": "z"}]
    assert column(sensors("read", "iot/newraw").rows, "payload") == ["plain"]


def test_columns_are_inferred_from_the_first_lines(line: Line) -> None:
    rows = (
        '{"i":1,"f":1,"t":"2026-01-01 10:00","d":"2026-01-01","s":"2026","n":null,"l":[1],"b":true}\n'
        '{"i":2,"f":1.5,"t":"2026-01-01T10:00:00.5+02:00","d":null,"s":"x","n":null,"l":[],"b":false}\n'
    )
    line("write", "s/x", "--create", stdin=rows)
    types = {c["name"]: c["type"] for c in line("stream", "show", "s/x", "--json").json["columns"]}
    assert types == {
        "i": "int64",
        "f": "double",
        "t": "timestamp[us, tz=UTC]",
        "d": "date32[day]",
        "s": "string",
        "n": "string",
        "l": "list<item: int64>",
        "b": "bool",
    }
    assert column(line("read", "s/x").rows, "t") == ["2026-01-01T10:00:00.000000Z", "2026-01-01T08:00:00.500000Z"]


def test_empty_fields_of_csv_are_null_and_empty_quotes_are_text(line: Line, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text('﻿a,b,c\r\n,"",1\r\n"x, ""y""\nz",NA,\r\n')
    line("write", "s/x", "--create", tmp_path / "m.csv")
    assert line("read", "s/x").rows == [{"a": None, "b": "", "c": 1}, {"a": 'x, "y"\nz', "b": "NA", "c": None}]


def test_times_are_iso_text_or_microseconds(sensors: Line) -> None:
    rows = '{"at":"2026-01-01"}\n{"at":"2026-01-01T01:00:00+01:00"}\n{"at":1767225600000000}\n{"at":null}\n'
    sensors("write", "iot/sensors", "--create", stdin=rows)
    assert column(sensors("read", "iot/sensors").rows[3:], "at") == ["2026-01-01T00:00:00.000000Z"] * 3 + [None]
    sensors(
        "write",
        "iot/sensors",
        "--create",
        "--format",
        "csv",
        stdin="at\n2026-01-01\n1767225600000000\n2026-01-01 00:00:00Z\n",
    )
    assert column(sensors("read", "iot/sensors").rows[7:], "at") == ["2026-01-01T00:00:00.000000Z"] * 3


def json_lines(count: int, wrong: dict[int, str]) -> str:
    return "".join(wrong.get(n, json.dumps({"device": f"d{n}", "celsius": n})) + "\n" for n in range(1, count + 1))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"device": "x"', "it is not JSON: Expecting ',' delimiter at character 15"),
        (
            "[1]",
            "expected a JSON object on each line, got an array; to convert a file that is one array: jq -c '.[]' FILE",
        ),
        ("null", "expected a JSON object on each line, got null"),
        ("\t null ", "expected a JSON object on each line, got null"),
        ("1.5", "expected a JSON object on each line, got a number"),
        ('{"nope": 1}', "unknown column 'nope'; the stream has device, at, celsius"),
        ('{"celsius": "warm"}', "column 'celsius' takes double"),
        ('{"device": 7}', "column 'device' takes string"),
        ('{"at": "yesterday"}', "column 'at' takes timestamp[us, tz=UTC]: 'yesterday' is not a time"),
        ('{"device": "\udc00"}', "it is not UTF-8 text: byte 13 is 0xed"),
        (r'{"device": "\udc00"}', "column 'device' takes string: 'utf-8' codec can't encode"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_a_wrong_json_line_is_named_and_all_before_it_is_written(sensors: Line, text: str, why: str) -> None:
    told = sensors.refused(
        "write", "iot/sensors", "--create", stdin=json_lines(40, {30: text}).encode("utf-8", "surrogatepass")
    )
    assert told.startswith(f"stdin, line 30: {why}")
    assert told.endswith("; the 29 events before it are written, and nothing after it")
    assert column(sensors("read", "iot/sensors").rows[3:], "device") == [f"d{n}" for n in range(1, 30)]


def test_a_file_that_is_one_json_array_is_refused_with_the_way_to_convert_it(line: Line, tmp_path: Path) -> None:
    for text in ('[{"a": 1}, {"a": 2}]', '[\n  {"a": 1}\n]\n'):
        (tmp_path / "array.jsonl").write_text(text)
        assert (
            "line 1: expected a JSON object on each line, got an array; to convert a file that is one array: jq -c '.[]' FILE;"
        ) in line.refused("write", "s/x", "--create", tmp_path / "array.jsonl")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x,2026-01-01,warm", "column 'celsius' takes double: invalid value 'warm'"),
        ("x,2026-01-01", "it has 2 fields, the header has 3"),
        ("x,soon,1", "column 'at' takes timestamp[us, tz=UTC]: 'soon' is not a time"),
        ('"two\nlines",soon,1', "column 'at' takes timestamp[us, tz=UTC]: 'soon' is not a time"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_a_wrong_csv_record_is_named_and_all_before_it_is_written(
    sensors: Line, tmp_path: Path, text: str, why: str
) -> None:
    records = [f"d{n},2026-01-01T00:00:00Z,{n}" for n in range(2, 60)]
    records[10] = '"quoted\nname",,'  # so that from here on a record's line is one more than its number
    records[50] = text
    (tmp_path / "m.csv").write_text("device,at,celsius\n" + "\n".join(records) + "\n")
    told = sensors.refused("write", "iot/sensors", "--create", tmp_path / "m.csv")
    assert told.startswith(f"{tmp_path / 'm.csv'}, line 53: {why}")
    assert told.endswith("; the 50 events before it are written, and nothing after it")
    assert len(sensors("read", "iot/sensors").rows) == 53


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.usefixtures("small_blocks")
def test_atomic_writes_nothing_of_a_rejected_file(sensors: Line, form: str) -> None:
    text = json_lines(40, {40: "{"}) if form == "jsonl" else "celsius\n" + "1\n" * 38 + "x\n"
    told = sensors.refused("write", "iot/sensors", "--create", "--format", form, "--atomic", stdin=text)
    assert told.startswith("stdin, line 40: ")
    assert told.endswith("; nothing is written")
    assert len(sensors("read", "iot/sensors").rows) == 3
    sensors.refused("write", "iot/new", "--create", "--format", form, "--atomic", "--schema", SCHEMA, stdin=text)
    assert sensors.refused("stream", "show", "iot/new").startswith("stream 'iot/new' not found")
    assert (
        sensors("write", "iot/sensors", "--create", "--atomic", "--json", stdin=json_lines(40, {})).json["events"] == 40
    )


def test_a_row_that_is_too_large_is_named(sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Settings(event_bytes_max=limits.KIB, large_event_bytes_max=limits.MIB)
    monkeypatch.setattr("anabranch.remote.open.connect", partial(connect, settings=small))
    monkeypatch.setattr("anabranch.cli.intake.source.LINE_BYTES_MAX", 2 * limits.MIB)
    large = "x" * (limits.MIB + 1)
    lines = "small\n" * 4 + large + "\nsmall\n"
    told = sensors.refused("write", "iot/raw", "--create", "--format", "lines", stdin=lines)
    assert told.startswith("stdin, line 5: an event's column 'payload' is 1,048,577 bytes, over the limit of 1,048,576")
    assert len(sensors("read", "iot/raw").rows) == 4
    pq.write_table(pa.table({"device": ["a", "k" * 70_000, "b"]}), tmp_path / "keys.parquet")
    told = sensors.refused("write", "iot/sensors", "--create", tmp_path / "keys.parquet")
    assert "row 2: a routing key is 70,000 bytes, over the limit of 65,536" in told
    assert len(sensors("read", "iot/sensors").rows) == 4
    endless = sensors.refused("write", "iot/raw", "--create", "--format", "lines", stdin="x" * (3 * limits.MIB) + "\n")
    assert "line 1: " in endless


def test_a_line_of_many_blocks_is_one_event(sensors: Line) -> None:
    lines = ["before", "x" * (limits.EVENT_BYTES_MAX + limits.MIB), "after"]
    sensors("write", "iot/raw", "--create", "--format", "lines", stdin="\n".join(lines))
    assert [row["payload"] for row in sensors("read", "iot/raw").rows] == lines


def test_a_parquet_row_that_does_not_fit_is_named(sensors: Line, tmp_path: Path) -> None:
    pq.write_table(pa.table({"celsius": ["1.5", "2", "warm"]}), tmp_path / "m.parquet")
    told = sensors.refused("write", "iot/sensors", "--create", tmp_path / "m.parquet")
    assert "m.parquet, row 3: column 'celsius' takes double" in told
    assert len(sensors("read", "iot/sensors").rows) == 5
    pq.write_table(pa.table({"nope": [1]}), tmp_path / "m.parquet")
    assert "unknown column 'nope'" in sensors.refused("write", "iot/sensors", "--create", tmp_path / "m.parquet")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("m.parquet", b"no parquet", "can't be read"),
        ("m.arrow", b"no arrow", "can't be read"),
        ("m.jsonl.gz", b"no gzip", "can't be read"),
        ("m.csv", b"a,a\n1,2\n", "line 1: the header names column 'a' twice"),
        ("m.csv", b"a,,\n1,2,3\n", "line 1: the header names column '' twice"),
        ("m.csv", b"", "is empty"),
        ("m.csv", b"\n\n", "is empty"),
        ("m.jsonl", b"", "is empty"),
        ("m.jsonl", b'{"a":1}\n{"a":\n', "line 2: it is not JSON"),
        ("m.jsonl", b'{"a":1}\n{"a":"x"}\n', "the columns of"),
        (
            "m.csv",
            b"a\nb\n\xff\n",
            "line 3: column 'a' takes string: invalid UTF8 data; the event before it is written",
        ),
        ("missing.csv", None, "can't be read: No such file or directory"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(
    sensors: Line, tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert complaint in sensors.refused("write", "iot/new", "--create", tmp_path / name)


def test_what_is_said_of_a_stream_must_fit_it(sensors: Line) -> None:
    assert sensors.refused("write", "iot/nope", stdin="x") == (
        "stream 'iot/nope' not found; to create the stream, pass --create"
    )
    told = sensors.refused("write", "iot/sensors", "--create", "--key", "at", stdin="{}")
    assert told == "the key of stream 'iot/sensors' is 'device', not 'at'; it can't be changed"
    assert "plain lines go to a raw stream" in sensors.refused(
        "write", "iot/sensors", "--create", "--format", "lines", stdin="x"
    )
    assert "have no columns" in sensors.refused(
        "write", "iot/new", "--create", "--format", "lines", "--key", "k", stdin="x"
    )
    assert "one character" in sensors.refused(
        "write", "iot/sensors", "--create", "--format", "csv", "--delimiter", "::", stdin="x"
    )
    assert "is not a stream name" in sensors.refused("write", "sensors", "--create", stdin="x")


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_any_size_give_the_same_events(line: Line) -> None:
    rows: list[dict[str, Any]] = [
        {"n": n, "text": "x" * (n % 50), "maybe": None if n % 3 else n / 2} for n in range(300)
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    assert (
        line("write", "s/json", "--create", "--schema", "n:int,text:string,maybe:double", "--json", stdin=text).json[
            "events"
        ]
        == 300
    )
    assert line("read", "s/json").rows == rows
    csv_text = "n,text,maybe\n" + "\n".join(
        f'{r["n"]},"{r["text"]}\n",{"" if r["maybe"] is None else r["maybe"]}' for r in rows
    )
    line("write", "s/csv", "--create", "--format", "csv", "--schema", "n:int,text:string,maybe:double", stdin=csv_text)
    assert line("read", "s/csv").rows == [{**row, "text": row["text"] + "\n"} for row in rows]


def test_a_name_that_is_misspelt_creates_nothing_and_is_corrected(sensors: Line) -> None:
    assert sensors.refused("write", "iot/sensor", stdin='{"a":1}\n') == (
        "stream 'iot/sensor' not found; did you mean 'iot/sensors'? to create the stream, pass --create"
    )
    assert sensors.refused("write", "iott/sensors", stdin='{"a":1}\n') == (
        "scope 'iott' not found; did you mean 'iot'? to create the stream, pass --create"
    )
    assert sensors.refused("read", "iot/sensor") == "stream 'iot/sensor' not found; did you mean 'iot/sensors'?"
    assert [row["name"] for row in sensors("stream", "list", "--json").json] == ["iot/raw", "iot/sensors"]


def test_one_command_creates_store_scope_and_stream(line: Line) -> None:
    assert "no store found" in line.refused("write", "new/s", stdin='{"a":1}\n')
    assert not line.store.exists()
    line("write", "new/s", "--create", stdin='{"a":1}\n')
    assert line("read", "new/s").rows == [{"a": 1}]
