"""Input that drifts from the stream's schema: new columns, bad rows; and what is left of a write that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.cli.intake import source
from tests.cli.kit import Line, column


def columns_of(line: Line, stream: str) -> list[str]:
    return column(line("stream", "show", stream, "--json").json["columns"], "name")


def rejects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


# columns that only the input has


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("atomic", [(), ("--atomic",)], ids=["rows", "atomic"])
def test_new_columns_are_added(sensors: Line, tmp_path: Path, kind: str, atomic: tuple[str, ...]) -> None:
    path = tmp_path / f"m.{kind}"
    rows = [{"device": "n", "humidity": 0.5, "seen": "2026-01-01T00:00:00Z"}, {"device": "m", "site": 7}]
    if kind == "csv":
        path.write_text("device,humidity,seen,site\nn,0.5,2026-01-01T00:00:00Z,\nm,,,7\n")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        table = pa.Table.from_pylist([{**dict.fromkeys(["humidity", "seen", "site"]), **row} for row in rows])
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_stream(path, table.schema) as file:
                file.write_table(table)
    assert "unknown column 'humidity'" in sensors.refused("write", "iot/sensors", path, *atomic)
    told = sensors("write", "iot/sensors", path, "--add-columns", "--json", *atomic).json
    assert (told["events"], told["added"]) == (2, ["humidity", "seen", "site"])
    first, second = sensors("read", "iot/sensors").rows[3:]
    assert (first["device"], first["humidity"], first["site"]) == ("n", 0.5, None)
    assert (second["device"], second["humidity"], second["site"]) == ("m", None, 7)
    again = sensors("write", "iot/sensors", path, "--add-columns", *atomic)
    assert "new columns" not in again.err
    assert len(sensors("read", "iot/sensors").rows) == 7


def test_json_columns_are_added_where_they_first_occur(sensors: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 64)
    monkeypatch.setattr(source, "_READ_BYTES", 48)
    rows = [{"device": f"d{n}", "celsius": n} | ({f"c{n // 10}": n} if n % 10 == 9 else {}) for n in range(40)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for more in ((), ("--atomic",)):
        sensors("write", "iot/sensors", "--add-columns", *more, stdin=text)
    assert columns_of(sensors, "iot/sensors")[3:] == ["c0", "c1", "c2", "c3"]
    read = sensors("read", "iot/sensors").rows[3:]
    assert [row["c2"] for row in read if row["c2"] is not None] == [29, 29]
    assert len(read) == 80


def test_columns_are_added_for_valid_rows_only_and_raw_streams_have_none(sensors: Line) -> None:
    assert "line 1: column 'celsius'" in sensors.refused(
        "write", "iot/sensors", "--add-columns", stdin='{"celsius": "x", "new": 1}\n'
    )
    assert columns_of(sensors, "iot/sensors") == ["device", "at", "celsius"]
    assert "a raw stream has no schema" in sensors.refused(
        "write", "iot/raw", "--add-columns", "--format", "jsonl", stdin='{"payload": "x", "new": 1}\n'
    )
    mixed = '{"new": 1}\n{"new": "x"}\n'
    assert "anabranch stream evolve" in sensors.refused("write", "iot/sensors", "--add-columns", stdin=mixed)


# bad rows


CSV = (
    "device,at,celsius\na,2026-01-01T00:00:00Z,1\nb,soon,2\nc,2026-01-01T00:00:00Z\nd,2026-01-01T00:00:00Z,warm\ne,,5\n"
)
LINES = '{"device":"a"}\n{"device":\n\n{"nope":1}\n{"device":"\\ud800"}\n{"celsius":"x"}\n{"device":"e"}\n'


def test_bad_rows_of_csv_go_to_the_reject_file(sensors: Line, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(CSV)
    bad = tmp_path / "bad.jsonl"
    told = sensors("write", "iot/sensors", tmp_path / "m.csv", "--reject-file", bad, "--json", code=1).json
    assert (told["events"], told["rejected"]) == (2, 3)
    assert column(sensors("read", "iot/sensors").rows[3:], "device") == ["a", "e"]
    assert [(row["line"], row["text"]) for row in rejects(bad)] == [
        (3, "b,soon,2"),
        (4, "c,2026-01-01T00:00:00Z"),
        (5, "d,2026-01-01T00:00:00Z,warm"),
    ]
    assert "'soon' is not a time" in rejects(bad)[0]["reason"]
    assert "it has 2 fields, the header has 3" in rejects(bad)[1]["reason"]
    assert "bad.jsonl can't be created: File exists" in sensors.refused(
        "write", "iot/sensors", tmp_path / "m.csv", "--reject-file", bad
    )


def test_bad_lines_of_json_go_to_the_reject_file(sensors: Line, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    done = sensors("write", "iot/sensors", "--reject-file", bad, stdin=LINES.encode() + b"\xff\n", code=1)
    assert "2 events written to 'iot/sensors'" in done.err and f"5 bad rows skipped; see {bad}" in done.err
    assert [row["line"] for row in rejects(bad)] == [2, 4, 5, 6, 8]
    assert rejects(bad)[1]["text"] == '{"nope":1}'
    assert rejects(bad)[4]["text_base64"] == "/w=="
    assert column(sensors("read", "iot/sensors").rows[3:], "device") == ["a", "e"]


def test_a_bad_line_with_half_a_surrogate_pair_goes_to_the_reject_file(sensors: Line, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    sensors("write", "iot/sensors", "--reject-file", bad, stdin='{"\\ud800": 1}\n', code=1)
    (row,) = rejects(bad)
    assert row["text"] == '{"\\ud800": 1}' and "\ud800" in row["reason"]


@pytest.mark.parametrize("atomic", [(), ("--atomic",)], ids=["rows", "atomic"])
def test_bad_rows_of_parquet_are_recorded_with_their_values(
    sensors: Line, tmp_path: Path, atomic: tuple[str, ...]
) -> None:
    pq.write_table(pa.table({"celsius": ["1.5", "x", "2", "y"]}), tmp_path / "m.parquet")
    bad = tmp_path / "bad.jsonl"
    sensors("write", "iot/sensors", tmp_path / "m.parquet", "--reject-file", bad, *atomic, code=1)
    assert column(sensors("read", "iot/sensors").rows[3:], "celsius") == [1.5, 2]
    assert [(row["row"], row["values"]) for row in rejects(bad)] == [(2, {"celsius": "x"}), (4, {"celsius": "y"})]


def test_times_and_large_keys_are_bad_rows_too(sensors: Line, tmp_path: Path) -> None:
    table = pa.table({"device": ["a", "k" * 70_000, "b"], "at": ["2026-01-01T00:00Z", "2026-01-01T00:00Z", "soon"]})
    pq.write_table(table, tmp_path / "m.parquet")
    bad = tmp_path / "bad.jsonl"
    sensors("write", "iot/sensors", tmp_path / "m.parquet", "--reject-file", bad, code=1)
    assert [row["row"] for row in rejects(bad)] == [2, 3]
    assert column(sensors("read", "iot/sensors").rows[3:], "device") == ["a"]


def test_so_many_errors_are_skipped_and_one_more_fails(sensors: Line, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(CSV)
    done = sensors("write", "iot/sensors", tmp_path / "m.csv", "--skip-errors", "3")
    assert "2 events written" in done.err and "3 bad rows skipped" in done.err
    told = sensors.refused("write", "iot/sensors", tmp_path / "m.csv", "--skip-errors", "2")
    assert "line 5: column 'celsius'" in told and "(--skip-errors 2 skips no more); the event before it" in told
    told = sensors.refused("write", "iot/sensors", tmp_path / "m.csv", "--skip-errors", "2", "--atomic")
    assert told.endswith("; nothing is written")
    assert len(sensors("read", "iot/sensors").rows) == 3 + 2 + 1
    bad = tmp_path / "bad.jsonl"
    sensors("write", "iot/sensors", tmp_path / "m.csv", "--skip-errors", "3", "--reject-file", bad)
    assert len(rejects(bad)) == 3
    sensors("write", "iot/sensors", "--reject-file", tmp_path / "none.jsonl", stdin='{"device":"x"}\n')
    assert not (tmp_path / "none.jsonl").exists(), "nothing was rejected"


@pytest.mark.parametrize("first", ["null", '{"a":', "[1]"])
def test_a_new_stream_gets_its_columns_from_the_rows_that_are_good(line: Line, tmp_path: Path, first: str) -> None:
    text = f'{first}\n{{"a": 1}}\n{{"a": 2}}\n'
    assert "line 1: " in line.refused("write", "s/x", "--create", "--format", "jsonl", stdin=text)
    bad = tmp_path / "bad.jsonl"
    line("write", "s/x", "--create", "--format", "jsonl", "--reject-file", bad, stdin=text, code=1)
    assert line("read", "s/x").rows == [{"a": 1}, {"a": 2}]
    assert rejects(bad)[0]["line"] == 1


# a first write that fails


BAD_FIRST = [
    ("--format", "jsonl", "--schema", "a:int"),
    ("--format", "csv", "--schema", "a:int"),
    ("--format", "jsonl", "--schema", "a:int", "--atomic"),
]


@pytest.mark.parametrize("options", BAD_FIRST, ids=" ".join)
def test_a_failed_first_write_leaves_nothing(line: Line, options: tuple[str, ...]) -> None:
    text = "a\nx\n1\n" if "csv" in options else '{"a": "x"}\n{"a": 1}\n'
    assert "nothing is written" in line.refused("write", "new/x", "--create", *options, stdin=text)
    assert not line.store.exists(), "no store"
    line("scope", "create", "iot")
    line.refused("write", "new/x", "--create", *options, stdin=text)
    assert column(line("scope", "list", "--json").json, "name") == ["iot"]
    line.refused("write", "iot/x", "--create", *options, stdin=text)
    assert line("stream", "list", "--json").json == []
    line("write", "new/x", "--create", *options, "--reject-file", line.store / "bad.jsonl", stdin=text, code=1)
    assert line("read", "new/x").rows == [{"a": 1}]


@pytest.mark.parametrize("atomic", [(), ("--atomic",)], ids=["rows", "atomic"])
def test_a_first_row_that_only_its_cast_refuses_leaves_nothing(
    line: Line, tmp_path: Path, atomic: tuple[str, ...]
) -> None:
    pq.write_table(pa.table({"a": [1 << 40, 1]}), tmp_path / "m.parquet")
    command = ("write", "new/x", tmp_path / "m.parquet", "--create", "--schema", "a:int32", *atomic)
    assert "row 1: column 'a'" in line.refused(*command)
    assert not line.store.exists(), "no store"
    line("scope", "create", "new")
    assert "nothing is written" in line.refused(*command)
    assert line("stream", "list", "--json").json == []


def test_a_full_disk_is_named_with_the_reject_file(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.jsonl"
    usual = Path.open

    def opened(path: Path, *arguments: Any, **options: Any) -> Any:
        if path != bad:
            return usual(path, *arguments, **options)
        bad.touch(exist_ok=False)
        return open("/dev/full", "w", encoding="utf-8")

    monkeypatch.setattr(Path, "open", opened)
    text = '{"device":"n"}\n{"device":7}\n{"device":"m"}\n'
    assert sensors.refused("write", "iot/sensors", "--reject-file", bad, stdin=text).endswith(
        f"{bad}: No space left on device"
    )
    assert column(sensors("read", "iot/sensors").rows[3:], "device") == ["n"]


def test_only_bad_rows_create_nothing(line: Line, tmp_path: Path) -> None:
    told = line(
        *("write", "new/x", "--create", "--schema", "a:int", "--json", "--reject-file", tmp_path / "bad.jsonl"),
        stdin='{"a": "x"}\n',
        code=1,
    ).json
    assert (told["events"], told["rejected"], told["created"], told["tail"]) == (0, 1, False, None)
    assert not line.store.exists()


def test_a_stream_whose_first_rows_can_not_be_appended_is_deleted_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line("scope", "create", "iot")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("anabranch.writing.writer.Writer.write_batch", fail)
    for name in ("new/x", "iot/x"):
        assert "no space" in line.refused("write", name, "--create", stdin='{"a": 1}\n')
    assert column(line("scope", "list", "--json").json, "name") == ["iot"]
    assert line("stream", "list", "--json").json == []


def test_an_empty_input_creates_its_stream(line: Line) -> None:
    line("write", "new/x", "--create", "--format", "csv", stdin="a,b\n")
    assert columns_of(line, "new/x") == ["a", "b"]
