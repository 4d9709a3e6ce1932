"""Values in CSV for which Arrow has no text: they are written as DuckDB writes them."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from anabranch.cli.render.csv_file import Csv
from anabranch.cli.render.sink import Sink

INTERVALS = (
    *(
        "0 days",
        "1 day",
        "-1 day",
        "2 days",
        "1 month",
        "-1 month",
        "1 year",
        "14 months",
        "-13 months 1 day",
        "24 months",
    ),
    *("14 months -3 days 04:05:06.7", "-1 second", "1 microsecond", "-100:00:00.000001", "25:00:00", "1 day -00:00:01"),
)


def csv_of(table: pa.Table) -> str:
    out = io.BytesIO()
    renderer = Csv(table.schema, Sink(out))
    for batch in table.to_batches():
        renderer.write(batch)
    renderer.close()
    return out.getvalue().decode()


def duckdb_csv(sql: str, file: Path) -> tuple[str, pa.Table]:
    with duckdb.connect() as database:
        database.execute(f"COPY ({sql}) TO '{file}' (FORMAT csv, FORCE_QUOTE *)")
        return file.read_text(), database.sql(sql).to_arrow_table()


def test_intervals_are_as_duckdb_writes_them(tmp_path: Path) -> None:
    rows = ", ".join(f"(INTERVAL '{each}')" for each in INTERVALS)
    text, table = duckdb_csv(f"SELECT i FROM (VALUES {rows}) AS t(i)", tmp_path / "out.csv")
    assert csv_of(table).splitlines()[1:] == text.splitlines()[1:]


@pytest.mark.parametrize(
    ("kind", "per_second"),
    [(pa.time32("s"), 1), (pa.time32("ms"), 1_000), (pa.time64("us"), 1_000_000), (pa.time64("ns"), 1_000_000_000)],
)
def test_the_end_of_the_day_is_a_time(kind: pa.DataType, per_second: int) -> None:
    times = pa.array([0, 86_399 * per_second, 86_400 * per_second, None], kind)
    rows = csv_of(pa.table({"at": times.slice(1), "n": [1, 2, 3]})).replace('"', "").splitlines()[1:]
    assert [row.partition(",")[0].partition(".")[0] for row in rows] == ["23:59:59", "24:00:00", ""]
    assert csv_of(pa.table({"at": times.slice(0, 2)})).splitlines()[1].startswith("00:00:00")
