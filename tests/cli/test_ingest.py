"""Numbers and times on their way from files into streams: kept as they are, or refused; never guessed at silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.cli.kit import Line, column

SECONDS = 1_782_907_200  # 2026-07-01T12:00:00Z
AT = "2026-07-01T12:00:00.000000Z"


def file(folder: Path, name: str, data: str | pa.Table) -> Path:
    path = folder / name
    if isinstance(data, str):
        path.write_text(data)
    elif name.endswith(".parquet"):
        pq.write_table(data, path)
    else:
        feather.write_feather(data, path, compression="uncompressed")
    return path


def types(line: Line, stream: str) -> dict[str, str]:
    return {each["name"]: each["type"] for each in line("stream", "show", stream, "--json").json["columns"]}


# numbers

BIG = (1 << 64) - 1
INFERRED: dict[str, tuple[str, str, list[Any]]] = {
    "uint64": (str(BIG), "uint64", [BIG]),
    "decimal": (f"{BIG + 1}", "decimal128(38, 0)", [str(BIG + 1)]),
    "negative": (f"{-(1 << 63) - 1}", "decimal128(38, 0)", [str(-(1 << 63) - 1)]),
    "int64": (f"{(1 << 63) - 1}", "int64", [(1 << 63) - 1]),
    "double": ("1e20", "double", [1e20]),
}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("what", INFERRED)
def test_integers_beyond_64_bits_get_a_type_that_holds_them(line: Line, tmp_path: Path, form: str, what: str) -> None:
    text, kind, values = INFERRED[what]
    data = f"n\n{text}\n5\n" if form == "csv" else f'{{"n": {text}}}\n{{"n": 5}}\n'
    line("write", "s/a", "--create", file(tmp_path, f"n.{form}", data))
    assert types(line, "s/a") == {"n": kind}
    assert [str(value) for value in column(line("read", "s/a").rows, "n")][:1] == [str(value) for value in values]


@pytest.mark.parametrize("data", ["n\n9007199254740993\n1.5\n", '{"n": 9007199254740993}\n{"n": 1.5}\n'])
def test_integers_among_fractions_that_a_double_would_round_are_refused(line: Line, tmp_path: Path, data: str) -> None:
    name = "n.csv" if data.startswith("n") else "n.jsonl"
    told = line.refused("write", "s/a", "--create", file(tmp_path, name, data))
    assert "9007199254740993, which a double would change" in told
    assert "--schema" in told


@pytest.mark.parametrize("data", ['{"n": [18446744073709551615]}', '{"n": {"m": 18446744073709551615}}'])
def test_rounded_integers_inside_lists_and_structs_are_refused(line: Line, tmp_path: Path, data: str) -> None:
    assert "18446744073709551615" in line.refused("write", "s/a", "--create", file(tmp_path, "n.jsonl", data))


def test_codes_with_leading_zeros_stay_texts(line: Line, tmp_path: Path) -> None:
    line("write", "s/a", "--create", file(tmp_path, "n.csv", "zip,n\n01234,0\n99999,7\n"))
    assert types(line, "s/a") == {"zip": "string", "n": "int64"}
    assert column(line("read", "s/a").rows, "zip") == ["01234", "99999"]


NUMBERS = {
    "double": ("9007199254740993", "1e400"),
    "float32": ("16777217", "1e39"),
    "int64": ("9223372036854775808", "1.5"),
    "uint64": ("18446744073709551616", "-1"),
    "decimal(10, 2)": ("1.239", "123456789012"),
    "int8": ("128", "2.5"),
}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_that_its_column_would_change_is_refused_with_its_line(line: Line, form: str, kind: str) -> None:
    line("scope", "create", "s")
    for at, text in enumerate(NUMBERS[kind]):
        line("stream", "create", f"s/n{at}", "--schema", f"n:{kind}")
        data = f"n\n1\n{text}\n2\n" if form == "csv" else f'{{"n": 1}}\n{{"n": {text}}}\n{{"n": 2}}\n'
        told = line.refused("write", f"s/n{at}", "--create", "--format", form, stdin=data)
        assert told.startswith(f"stdin, line {3 if form == 'csv' else 2}: "), told
        assert [float(value) for value in column(line("read", f"s/n{at}").rows, "n")] == [1]


def test_decimals_in_json_keep_all_their_digits(line: Line) -> None:
    line("scope", "create", "s")
    line("stream", "create", "s/a", "--schema", "n:decimal(30, 10)")
    line("write", "s/a", "--create", stdin='{"n": 12345678901234567.8901234567}\n')
    assert column(line("read", "s/a").rows, "n") == ["12345678901234567.8901234567"]


@pytest.mark.parametrize("name", ["n.parquet", "n.arrow"])
def test_a_row_of_a_file_that_would_be_changed_is_named(line: Line, tmp_path: Path, name: str) -> None:
    line("scope", "create", "s")
    line("stream", "create", "s/a", "--schema", "n:int64")
    rows = pa.table({"n": pa.array([1, 2, BIG], pa.uint64())})
    assert "row 3: column 'n' takes int64" in line.refused("write", "s/a", "--create", file(tmp_path, name, rows))
    assert column(line("read", "s/a").rows, "n") == [1, 2]


# times: zones


def test_a_time_without_a_zone_is_utc_which_is_said_once(line: Line, tmp_path: Path) -> None:
    data = "at\n2026-07-01 12:00:00\n2026-07-01T12:00:00\n"
    done = line("write", "s/a", "--create", file(tmp_path, "a.csv", data), "--time", "at")
    assert done.err.count("warning") == 1
    assert "anabranch: warning: a time without a zone was taken as UTC" in done.err
    assert "--time-zone" in done.err
    assert column(line("read", "s/a").rows, "at") == [AT] * 2
    assert "warning" in line("read", "s/a", "--from", "2026-01-01T00:00:00").err
    assert "warning" not in line("read", "s/a", "--from", "2026-01-01T00:00:00Z").err
    assert "warning" not in line("read", "s/a", "--from", "2026-01-01T00:00:00", "--time-zone", "UTC").err


NAIVE = pa.array([1_782_914_400_000_000], pa.timestamp("us"))  # 14:00


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", "at\n2026-07-01 14:00:00\n2026-07-01T12:00Z\n"),
        ("a.jsonl", '{"at": "2026-07-01T14:00:00"}\n{"at": "2026-07-01T12:00:00Z"}\n'),
        ("b.jsonl", '{"at": "2026-07-01T14:00:00"}\n{"at": "2026-07-01T14:00:00"}\n'),
        ("a.parquet", pa.table({"at": NAIVE})),
        ("a.arrow", pa.table({"at": NAIVE})),
        ("b.parquet", pa.table({"at": ["2026-07-01T14:00:00"]})),
    ],
)
def test_times_are_of_the_zone_that_is_said(line: Line, tmp_path: Path, name: str, data: str | pa.Table) -> None:
    line("scope", "create", "s")
    line("stream", "create", "s/a", "--schema", "at:timestamp", "--time", "at")
    done = line("write", "s/a", "--create", file(tmp_path, name, data), "--time-zone", "Europe/Berlin")
    assert "warning" not in done.err
    assert {*column(line("read", "s/a").rows, "at")} == {AT}
    found = line("read", "s/a", "--from", "2026-07-01T14:00:00", "--by", "event", "--time-zone", "Europe/Berlin")
    assert len(found.rows) >= 1


def test_the_zone_may_come_from_the_environment_and_may_be_refused(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_TIME_ZONE", "refuse")
    path = file(tmp_path, "a.csv", "at\n2026-07-01 14:00:00Z\n2026-07-01 14:00:00\n")
    assert "line 3: column 'at'" in (told := line.refused("write", "s/a", "--create", path, "--time", "at"))
    assert "has no zone" in told
    assert "has no zone" in line.refused("read", "s/a", "--from", "2026-01-01T00:00:00")
    line("write", "s/b", "--create", path, "--time", "at", "--time-zone", "Europe/Berlin")
    assert column(line("read", "s/b").rows, "at") == ["2026-07-01T14:00:00.000000Z", AT]
    assert "unknown time zone 'Nowhere'" in line.refused("write", "s/a", "--create", path, "--time-zone", "Nowhere")


def test_local_times_that_clocks_skip_or_repeat_are_refused_with_their_line(line: Line, tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "at\n2026-03-29 01:30:00\n2026-03-29 02:30:00\n")
    told = line.refused("write", "s/a", "--create", path, "--time", "at", "--time-zone", "Europe/Berlin")
    assert "line 3" in told and "skipped or repeated in Europe/Berlin" in told


# times: units and formats

FORMS = ["csv", "jsonl", "parquet", "arrow"]


def numbers(folder: Path, form: str, values: list[Any]) -> Path:
    if form == "csv":
        return file(folder, "n.csv", "at\n" + "".join(f"{value}\n" for value in values))
    if form == "jsonl":
        return file(folder, "n.jsonl", "".join(f'{{"at": {value}}}\n' for value in values))
    return file(folder, f"n.{form}", pa.table({"at": values}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_numbers_of_another_unit_than_microseconds_need_to_say_so(
    line: Line, tmp_path: Path, form: str, unit: str, per_second: int
) -> None:
    path = numbers(tmp_path, form, [SECONDS * per_second] * 2)
    if unit != "us":
        told = line.refused("write", "s/a", "--create", path, "--time", "at")
        assert f"{SECONDS * per_second} is not a plausible time in µs" in told
        assert f"in {unit} 2026-07-01T12:00:00Z" in told
        assert "--time-unit" in told
        assert "warning" not in told
    line("write", "s/b", "--create", path, "--time", "at", "--time-unit", unit)
    line("write", "s/b", "--create", path, "--time-unit", unit)
    assert column(line("read", "s/b").rows, "at") == [AT] * 4


@pytest.mark.parametrize("form", FORMS)
def test_a_unit_that_is_said_is_believed(line: Line, tmp_path: Path, form: str) -> None:
    line("write", "s/a", "--create", numbers(tmp_path, form, [0, -1, 5]), "--time", "at", "--time-unit", "us")
    first = ["1970-01-01T00:00:00.000000Z", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00.000005Z"]
    assert column(line("read", "s/a").rows, "at") == first


@pytest.mark.parametrize("form", FORMS)
def test_the_one_number_that_is_no_likely_time_is_named(line: Line, tmp_path: Path, form: str) -> None:
    path = numbers(tmp_path, form, [SECONDS * 10**6, SECONDS, SECONDS * 10**6])
    where = {"csv": "line 3", "jsonl": "line 2"}.get(form, "row 2")
    assert f"{where}: column 'at'" in line.refused("write", "s/a", "--create", path, "--time", "at")
    assert column(line("read", "s/a").rows, "at") == [AT]


@pytest.mark.parametrize("form", FORMS)
def test_fractions_of_seconds_are_exact(line: Line, tmp_path: Path, form: str) -> None:
    line("write", "s/a", "--create", numbers(tmp_path, form, [SECONDS + 0.123456]), "--time", "at", "--time-unit", "s")
    assert column(line("read", "s/a").rows, "at") == ["2026-07-01T12:00:00.123456Z"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", "at,n\n01.07.2026 14:00,1\n"),
        ("a.jsonl", '{"at": "01.07.2026 14:00", "n": 1}\n'),
        ("a.parquet", pa.table({"at": ["01.07.2026 14:00"], "n": [1]})),
    ],
)
def test_times_are_read_in_the_format_that_is_said(line: Line, tmp_path: Path, name: str, data: str | pa.Table) -> None:
    path = file(tmp_path, name, data)
    how = ("--time-format", "%d.%m.%Y %H:%M", "--time-zone", "Europe/Berlin")
    line("write", "s/a", "--create", path, "--time", "at", *how)
    assert column(line("read", "s/a").rows, "at") == [AT]
    told = line.refused("write", "s/a", "--create", path, "--time-format", "%Y/%m/%d")
    assert "'01.07.2026 14:00' is not a time of the format '%Y/%m/%d'" in told
    told = line.refused("write", "s/b", "--create", path, "--time", "at")
    assert "column 'at' holds texts that are not ISO 8601 times: pass --time-format" in told


def test_the_unit_of_numbers_with_fractions_has_to_be_said(line: Line) -> None:
    told = line.refused("write", "s/a", "--create", "--time", "at", stdin='{"at": 1782907200.5}\n')
    assert "column 'at' holds numbers with fractions: pass their unit with --time-unit" in told


def test_a_format_with_a_zone_needs_none_and_other_times_are_not_its_business(line: Line) -> None:
    line("scope", "create", "s")
    line("stream", "create", "s/a", "--schema", "at:timestamp, seen:timestamp", "--time", "at")
    data = '{"at": "20260701 1400 +0200", "seen": "2026-07-01T12:00:00Z"}\n'
    done = line("write", "s/a", "--create", "--time-format", "%Y%m%d %H%M %z", stdin=data)
    assert "warning" not in done.err
    assert line("read", "s/a").rows == [{"at": AT, "seen": AT}]


# times: digits

FINE = "2026-07-01T12:00:00.123456789Z"
FINE_NS = SECONDS * 10**9 + 123_456_789


@pytest.mark.parametrize(
    ("name", "data", "unit"),
    [
        ("a.csv", f"at\n{AT}\n{FINE}\n", ()),
        ("a.jsonl", f'{{"at": "{AT}"}}\n{{"at": "{FINE}"}}\n', ()),
        ("b.csv", f"at\n{SECONDS * 10**9}\n{FINE_NS}\n", ("--time-unit", "ns")),
        ("b.jsonl", f'{{"at": {SECONDS * 10**9}}}\n{{"at": {FINE_NS}}}\n', ("--time-unit", "ns")),
        ("a.parquet", pa.table({"at": pa.array([SECONDS * 10**9, FINE_NS], pa.timestamp("ns", "UTC"))}), ()),
        ("a.arrow", pa.table({"at": pa.array([SECONDS * 10**9, FINE_NS], pa.timestamp("ns", "UTC"))}), ()),
    ],
)
def test_digits_beyond_microseconds_are_refused_unless_they_are_to_be_cut_off(
    line: Line, tmp_path: Path, name: str, data: str | pa.Table, unit: tuple[str, ...]
) -> None:
    line("scope", "create", "s")
    for stream in ("s/a", "s/b"):
        line("stream", "create", stream, "--schema", "at:timestamp", "--time", "at")
    path = file(tmp_path, name, data)
    told = line.refused("write", "s/a", "--create", path, *unit)
    assert "digits beyond µs" in told and "--truncate-times" in told
    assert column(line("read", "s/a").rows, "at") == [AT]
    line("write", "s/b", "--create", path, "--truncate-times", *unit)
    assert column(line("read", "s/b").rows, "at") == [AT, "2026-07-01T12:00:00.123456Z"]
    assert "digits beyond µs" in line.refused("write", "s/b", "--create", path, *unit), "it holds for one command"


def test_a_stream_made_from_a_file_takes_a_column_of_numbers_as_its_event_time(line: Line, tmp_path: Path) -> None:
    path = file(tmp_path, "n.csv", f"at\n{SECONDS}\n")
    line("scope", "create", "s")
    line("stream", "create", "s/a", "--schema-from", path, "--time", "at")
    line("write", "s/a", "--create", path, "--time-unit", "s")
    assert column(line("read", "s/a").rows, "at") == [AT]
