"""Reading: where from, how much, and in which form."""

from __future__ import annotations

import gc
import io
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.cli.render.parquet_file import Parquet
from anabranch.cli.render.sink import Sink
from anabranch.errors import InvalidArgument
from tests.cli.kit import Line, column
from tests.waiting import PATIENCE_S


def test_formats(sensors: Line) -> None:
    assert sensors("read", "iot/sensors", "--format", "csv").out == (
        '"device","at","celsius"\n'
        '"a","2026-01-01T00:00:00.000000Z",1.5\n'
        '"b","2026-01-01T00:00:01.000000Z",2.5\n'
        '"a","2026-01-01T00:00:02.000000Z",3.5\n'
    )
    assert sensors("read", "iot/sensors", "--format", "table").out.splitlines() == [
        "device  at                           celsius",
        "a       2026-01-01T00:00:00.000000Z      1.5",
        "b       2026-01-01T00:00:01.000000Z      2.5",
        "a       2026-01-01T00:00:02.000000Z      3.5",
    ]
    assert sensors("read", "iot/sensors", "--json").out == sensors("read", "iot/sensors").out
    assert "can't be combined with" in sensors.refused("read", "iot/sensors", "--json", "--format", "csv")


def test_an_arrow_stream_is_whole_even_without_rows(sensors: Line) -> None:
    processes = [sensors.start("read", stream, "--format", "arrow") for stream in ("iot/sensors", "iot/raw")]
    for process, rows in zip(processes, (3, 0), strict=True):
        out, _ = process.communicate(timeout=PATIENCE_S)
        table = pa.ipc.open_stream(out).read_all()
        assert table.num_rows == rows
    assert table.column_names == ["key", "time", "payload"]


def test_a_parquet_file_goes_to_stdout_and_to_a_new_file(sensors: Line, tmp_path: Path) -> None:
    rows = sensors("read", "iot/sensors", "--format", "arrow", "--output", tmp_path / "all.arrows")
    assert (rows.out, rows.err) == ("", "")
    with pa.ipc.open_stream(tmp_path / "all.arrows") as stream:
        expected = stream.read_all()
    sensors("read", "iot/sensors", "--output", tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet") == expected
    process = sensors.start("read", "iot/sensors", "--format", "parquet")
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert pq.read_table(pa.BufferReader(out)) == expected
    sensors("read", "iot/raw", "--output", tmp_path / "none.pq")
    assert pq.read_table(tmp_path / "none.pq").column_names == ["key", "time", "payload"]
    sensors("write", "iot/again", "--create", tmp_path / "all.parquet")
    assert sensors("read", "iot/again").rows == sensors("read", "iot/sensors").rows


def test_row_groups_bound_what_a_parquet_file_holds_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    batch = pa.record_batch({"a": [1, 2]})
    monkeypatch.setattr("anabranch.cli.render.parquet_file._ROW_GROUP_BYTES", 2 * batch.nbytes)
    renderer = Parquet(batch.schema, Sink(file))
    for _ in range(5):
        renderer.write(batch)
    renderer.close()
    file.seek(0)
    metadata = pq.ParquetFile(file).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 2]


def test_the_format_of_a_file_is_that_of_its_ending(sensors: Line, tmp_path: Path) -> None:
    sensors("read", "iot/sensors", "--output", tmp_path / "a.csv", "--limit", "1")
    assert (tmp_path / "a.csv").read_text() == '"device","at","celsius"\n"a","2026-01-01T00:00:00.000000Z",1.5\n'
    sensors("query", "SELECT count(*) AS n FROM iot.sensors", "-o", tmp_path / "n.jsonl")
    assert (tmp_path / "n.jsonl").read_text() == '{"n": 3}\n'
    assert "a.csv can't be created: File exists" in sensors.refused("read", "iot/sensors", "-o", tmp_path / "a.csv")
    assert "names no format" in sensors.refused("read", "iot/sensors", "-o", tmp_path / "a.xlsx")
    sensors("read", "iot/sensors", "-o", tmp_path / "a.xlsx", "--format", "csv")


def test_half_a_result_never_looks_like_a_whole_one(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def fail_later(self: Parquet, batch: pa.RecordBatch) -> None:
        written.append(batch.num_rows)
        raise InvalidArgument("it fails")

    monkeypatch.setattr(Parquet, "write", fail_later)
    assert sensors.refused("read", "iot/sensors", "-o", tmp_path / "a.parquet") == "it fails"
    assert written and not (tmp_path / "a.parquet").exists()
    file = io.BytesIO()
    unfinished = Parquet(pa.schema([("a", pa.int64())]), Sink(file))
    del unfinished
    gc.collect()
    assert file.getvalue() == b"PAR1", "it has no footer"
    assert "complete only at its end" in sensors.refused("read", "iot/sensors", "-f", "--format", "parquet")
    monkeypatch.undo()
    sensors("read", "iot/sensors", "-f", "--limit", "3", "-o", tmp_path / "a.parquet")
    assert pq.read_metadata(tmp_path / "a.parquet").num_rows == 3


def test_an_empty_result_has_its_header(sensors: Line) -> None:
    assert sensors("read", "iot/raw").out == ""
    assert sensors("read", "iot/raw", "--format", "csv").out == '"key","time","payload"\n'
    assert sensors("read", "iot/raw", "--format", "table").out == "key  time  payload\n"


def test_limit_and_columns(sensors: Line) -> None:
    assert sensors("read", "iot/sensors", "--columns", "celsius,device", "-n", "2").rows == [
        {"celsius": 1.5, "device": "a"},
        {"celsius": 2.5, "device": "b"},
    ]
    assert sensors("read", "iot/sensors", "-n", "0").out == ""
    assert sensors.refused("read", "iot/sensors", "--columns", "") == "--columns takes a list such as a,b, not ''"
    assert "unknown column 'nope'" in sensors.refused("read", "iot/sensors", "--columns", "nope")


def test_places(sensors: Line) -> None:
    cut = sensors("stream", "show", "iot/sensors", "--json").json["tail"]
    pointers = column(sensors("read", "iot/sensors", "--meta").rows, "_pointer")
    assert sensors("read", "iot/sensors", "--from", "tail").out == ""
    assert sensors("read", "iot/sensors", "--from", "-1h").out == sensors("read", "iot/sensors", "--from", "HEAD").out
    assert len(sensors("read", "iot/sensors", "--from", pointers[1]).rows) == 2
    assert len(sensors("read", "iot/sensors", "--to", pointers[1]).rows) == 1
    assert len(sensors("read", "iot/sensors", "--from", "2026-01-01T00:00:01Z", "--by", "event").rows) == 2
    sensors("write", "iot/sensors", "--create", stdin='{"device":"later"}\n')
    assert column(sensors("read", "iot/sensors", "--from", cut).rows, "device") == ["later"]
    assert len(sensors("read", "iot/sensors", "--to", cut).rows) == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("yesterday", "is not a position in a stream: expected head, tail"),
        ("-1y", "is not a position in a stream"),
        ("0123456789abcdef:", "is not a stream cut"),
        ("0123456789abcdef:0000000000000000@0", "belongs to stream 0123456789abcdef"),
        ("0123456789abcdef0123456789abcdef", "is it complete?"),
        ("0" * 48, "the pointer belongs to stream 0000000000000000"),
        ("f" * 48, "is not an event pointer"),
    ],
)
def test_a_place_that_is_none_is_refused(sensors: Line, text: str, complaint: str) -> None:
    assert complaint in sensors.refused("read", "iot/sensors", "--from", text)


def test_a_cut_must_cover_its_stream(sensors: Line) -> None:
    sensors("stream", "scale", "iot/raw", "--segments", "2")
    head = sensors("stream", "show", "iot/raw", "--json").json["tail"]
    assert "does not cover the key space" in sensors.refused("read", "iot/raw", "--from", head.rpartition(":")[0])
    beyond = head.replace("@0", "@7")
    assert "the end of segment" in sensors.refused("read", "iot/raw", "--from", beyond)


def test_events_of_a_span_of_time(sensors: Line) -> None:
    def celsius(span: str) -> list[float]:
        return column(sensors("read", "iot/sensors", "--where-time", span).rows, "celsius")

    assert celsius("2026-01-01T00:00:01Z..2026-01-01T00:00:02Z") == [2.5]
    assert celsius("2026-01-01T00:00:01Z..") == [2.5, 3.5]
    assert celsius("..2026-01-01T00:00:01Z") == [1.5]
    assert "is not a time range" in sensors.refused("read", "iot/sensors", "--where-time", "2026")
    assert "is not a time" in sensors.refused("read", "iot/sensors", "--where-time", "tail..head")


def test_every_type_is_printed(line: Line) -> None:
    schema = (
        "i:int8,u:uint64,f:double,b:bool,s:string,x:binary,d:date,t:timestamp,n:decimal(6,2),"
        "l:list<int>,r:struct<a:double,b:timestamp>"
    )
    rows = (
        '{"i":-1,"u":18446744073709551615,"f":1e300,"b":true,"s":"é\\"\\n","x_base64":"/w==","d":"2026-01-31",'
        '"t":"2026-01-31T12:00:00.000001Z","n":"12.30","l":[1,null],"r":{"a":0.5}}\n{}\n'
    )
    line("write", "s/x", "--create", "--schema", schema, stdin=rows)
    first, second = line("read", "s/x").rows
    assert first == {
        "i": -1,
        "u": 18446744073709551615,
        "f": 1e300,
        "b": True,
        "s": 'é"\n',
        "x_base64": "/w==",
        "d": "2026-01-31",
        "t": "2026-01-31T12:00:00.000001Z",
        "n": "12.30",
        "l": [1, None],
        "r": {"a": 0.5, "b": None},
    }
    assert set(second.values()) == {None}
    assert "base64:/w==" in line("read", "s/x", "--format", "csv").out
    assert r"\xff" in line("read", "s/x", "--format", "table").out


def test_times_beyond_what_python_holds_are_printed(line: Line) -> None:
    nested = pa.struct([("at", pa.timestamp("us", "UTC"))])
    columns = {
        "t": pa.array([45_296_123_456_789], pa.time64("ns")),
        "d": pa.array([1_000_000_001], pa.duration("ns")),
        "r": pa.array([{"at": 300_000_000_000_000_000}], nested),
        "at": pa.array([1 << 62], pa.timestamp("us", "UTC")),
        "day": pa.array([1 << 30], pa.int32()).cast(pa.date32()),
    }
    line("scope", "create", "s")
    with ab.connect(line.store) as store:
        store.streams.create("s/x", schema=pa.table(columns).schema)
        with store.writer("s/x") as writer:
            writer.write_batch(pa.table(columns))
    assert line("read", "s/x").rows == [
        {
            "t": "12:34:56.123456789",
            "d": "PT1.000000001S",
            "r": {"at": "11476-08-15T05:20:00.000000Z"},
            "at": "4611686018427387904",
            "day": "1073741824",
        }
    ]
    for form in ("csv", "table"):
        printed = line("read", "s/x", "--format", form).out
        assert all(each in printed for each in ("12:34:56.123456789", "PT1.000000001S", "11476-08-15T05:20"))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_bytes_are_read_back_as_they_were(line: Line, tmp_path: Path, form: str) -> None:
    values = [b"plain", b"\xff\x00", b"base64:/w==", b"", None]
    columns: dict[str, pa.Array] = {"n": pa.array(range(5)), "b": pa.array(values, pa.binary())}
    if form == "jsonl":
        columns["l"] = pa.array([values], pa.list_(pa.binary())).take(pa.array([0] * 5))
        columns["s"] = pa.array([{"b": value} for value in values], pa.struct([("b", pa.binary())]))
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "bytes.parquet")
    line("write", "s/x", "--create", tmp_path / "bytes.parquet")
    with ab.connect(line.store) as store:
        store.streams.create("s/y", schema=table.schema)
    printed = line("read", "s/x", "--format", form).out
    (tmp_path / f"again.{form}").write_text(printed)
    line("write", "s/y", tmp_path / f"again.{form}")
    assert line("read", "s/y", "--format", form).out == printed
    with ab.connect(line.store) as store, store.reader("s/y") as reader:
        found = pa.Table.from_batches(list(reader.batches())).select(table.column_names).sort_by("n")
    assert found.to_pydict() == table.to_pydict()


def test_numbers_that_json_lacks_are_texts_which_write_reads_back(line: Line, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("f\nnan\ninf\n-inf\n1\n\n")
    line("write", "s/x", "--create", tmp_path / "m.csv", "--schema", "f:double")
    printed = line("read", "s/x").out
    values = ["NaN", "Infinity", "-Infinity", 1.0]
    assert [json.loads(text) for text in printed.splitlines()] == [{"f": value} for value in values]
    assert line("read", "s/x", "--format", "table").out.split() == ["f", "NaN", "Infinity", "-Infinity", "1.0"]
    for stream, schema in (("s/declared", ["--schema", "f:double"]), ("s/inferred", [])):
        line("write", stream, "--create", *schema, stdin='{"f": 1.5}\n' + printed)
        assert line("read", stream).out == '{"f": 1.5}\n' + printed
        assert line("query", f"SELECT f FROM {stream.replace('/', '.')}", "--format", "csv").out.split() == [
            *('"f"', "1.5", "nan", "inf", "-inf", "1")
        ]
    assert "column 'f' takes double" in line.refused("write", "s/declared", "--create", stdin='{"f": "nan?"}\n')


def test_numbers_that_json_lacks_are_read_within_lists_and_structs(line: Line) -> None:
    line("scope", "create", "s")
    line("stream", "create", "s/x", "--schema", "l:list<double>, r:struct<f: float32, s: string>")
    row = '{"l": [1.5, "NaN", null], "r": {"f": "-Infinity", "s": "NaN"}}\n'
    line("write", "s/x", "--create", stdin=row)
    assert line("read", "s/x").out == row


def test_an_event_can_not_steer_the_terminal(line: Line) -> None:
    line("write", "s/x", "--create", stdin='{"s":"\\u001b[2Jgone\\u0007"}\n')
    assert "\x1b" not in line("read", "s/x", "--format", "table").out


def test_following_ends_at_the_limit(sensors: Line) -> None:
    assert len(sensors("read", "iot/sensors", "--follow", "--limit", "3").rows) == 3
    assert "that follows the stream can't have an end" in sensors.refused("read", "iot/sensors", "-f", "--to", "tail")
    assert "expected --by append or --by event" in sensors.refused("read", "iot/sensors", "--by", "nope")


def test_the_files_of_a_stream_are_listed_for_other_engines(sensors: Line) -> None:
    listed = sensors("files", "iot/sensors", "--json")
    assert listed.json == {"stream": "iot/sensors", "events": 0, "missing": 3, "files": []}
    assert "3 events have not been compacted" in listed.err
    sensors("compact", "--force")
    (file,) = sensors("files", "iot/sensors", "--json").json["files"]
    assert [(rows["start"], rows["stop"], rows["offset"]) for rows in file["rows"]] == [(0, 3, 0)]
    assert file["path"] in sensors("files", "iot/sensors").out
    select = sensors("files", "iot/sensors", "--sql").out
    found = duckdb.connect().execute(f"SELECT device, celsius FROM ({select}) ORDER BY _offset").fetchall()
    assert found == [("a", 1.5), ("b", 2.5), ("a", 3.5)]
    assert "can't be combined" in sensors.refused("files", "iot/sensors", "--sql", "--json")
