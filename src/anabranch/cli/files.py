"""`anabranch files`: the Parquet files that hold a stream's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.cli.declare import flag
from anabranch.cli.options import JSON_OPTION
from anabranch.cli.output import counted, print_columns, print_json, print_note, put_text
from anabranch.cli.ranges import RangeOptions
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.reading.history.files import FileRows


def files(
    stream: RangeOptions,
    sql: bool = flag("--sql", "Print a SELECT for DuckDB that returns the stream's events from the files."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List the Parquet files that hold a stream's history, and which of their rows are the stream's.

    Any engine that reads Parquet can read them. A file may hold rows of other streams too, so take only the rows listed.
    Events become Parquet when they are compacted; how many are not yet is printed on stderr.

    Examples:

      anabranch compact --force && anabranch files iot/sensors
      anabranch files iot/sensors --from 2026-01-01 --json | jq -r '.files[].path'
      duckdb -c "$(anabranch files iot/sensors --sql)"
    """
    if sql and as_json:
        raise InvalidArgument("--sql prints SQL: it can't be combined with --json")
    with stream.open() as (opened, part):
        found = opened.history(opened.streams.get(part.stream).name).files(part.start, part.end)
    if found.missing:
        have = "has" if found.missing == 1 else "have"
        print_note(
            f"{counted(found.missing, 'event')} {have} not been compacted and are in no Parquet file: anabranch compact --force"
        )
    if sql:
        put_text(found.duckdb_sql())
    elif as_json:
        listed = [
            {"path": file.path, "columns": file.columns.names, "rows": [_rows(rows) for rows in file.rows]}
            for file in found.files
        ]
        print_json({"stream": found.stream, "events": found.events, "missing": found.missing, "files": listed})
    else:
        print_columns(
            ("rows", "segment", "first offset", "file"),
            [
                (f"{r.start}-{r.stop - 1}", str(r.segment), r.offset, file.path)
                for file in found.files
                for r in file.rows
            ],
        )


def _rows(rows: FileRows) -> dict[str, object]:
    return {"start": rows.start, "stop": rows.stop, "segment": str(rows.segment), "offset": rows.offset}
