"""The options of `anabranch write`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.declare import argument, flag, option
from anabranch.cli.formats import FileFormat, TimeUnit
from anabranch.cli.options import TRUNCATE_TIMES_OPTION


@dataclass(frozen=True)
class InputOptions:
    """What is written, how it is read, and what becomes of bad rows."""

    file: str = argument("[FILE]", "A file; - or nothing is stdin.", default="-")
    form: FileFormat | None = option(
        "--format", None, "The file's format; default: by its ending, else what fits the stream."
    )
    create: bool = flag("--create", "Create the stream, and the store, if they do not exist, with the columns found.")
    key: str | None = option("--key", "COLUMN", "For a new stream: the routing key.")
    time: str | None = option("--time", "COLUMN", "For a new stream: the event time.")
    schema: str | None = option("--schema", "TEXT", "For a new stream: its columns, as in stream create.")
    segments: int = option("--segments", "N", "For a new stream: its segments.", default=1)
    time_unit: TimeUnit | None = option(
        "--time-unit", None, "The unit of times given as numbers (since 1970); default: µs, if plausible."
    )
    time_format: str | None = option("--time-format", "FORMAT", "The format of the event time: '%d.%m.%Y %H:%M'.")
    truncate_times: bool = TRUNCATE_TIMES_OPTION
    delimiter: str | None = option(
        "--delimiter", "C", "The delimiter of CSV fields; default: a comma, in .tsv files a tab (\\t)."
    )
    add_columns: bool = flag("--add-columns", "Add columns to the stream that only the input has.")
    reject_file: Path | None = option(
        "--reject-file", "FILE", "Record bad rows in this new file, and write all others."
    )
    skip_errors: int | None = option("--skip-errors", "N", "Skip up to N bad rows; one more is an error.", min=0)
    atomic: bool = flag("--atomic", "Write the whole file at once, or nothing; it must fit into 1 GiB.")
