"""`anabranch stream create`: a new stream with its columns, segments and policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.autoscale import RateOptions
from anabranch.cli.check_values import CHECK_OPTION, parse_checks
from anabranch.cli.declare import flag, option
from anabranch.cli.options import (
    JSON_OPTION,
    KEY_OPTION,
    SCHEMA_OPTION,
    STREAM_ARGUMENT,
    TAG_OPTION,
    TIME_OPTION,
    open_catalog,
)
from anabranch.cli.output import counted
from anabranch.cli.retain import policy_from_options
from anabranch.core.pairs import parse_pairs
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa


def create(
    stream: str = STREAM_ARGUMENT,
    *,
    schema: str | None = SCHEMA_OPTION,
    schema_from: Path | None = option(
        "--schema-from", "FILE", "Take the columns of a CSV, JSON lines, Parquet or Arrow file."
    ),
    key: str | None = KEY_OPTION,
    time: str | None = TIME_OPTION,
    segments: int | None = option("--segments", "N", "Segments of equal key range; default: 1."),
    rate: RateOptions,
    retain_for: str | None = option("--retain-for", "AGE", "Remove events older than this: 7d, 12h, 30m."),
    retain_bytes: str | None = option("--retain-bytes", "SIZE", "Keep this many of the newest bytes: 10GB."),
    retain_group: list[str] | None = option(
        "--retain-group",
        "GROUP",
        "Remove events that this reader group has read; with several groups, those that all have read.",
    ),
    check: list[str] | None = CHECK_OPTION,
    tag: list[str] | None = TAG_OPTION,
    exist_ok: bool = flag("--exist-ok", "Do nothing if the stream exists with the same schema."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Create a stream. Without a schema it is raw: its events are bytes with a key and a time.

    Types: string, int64 (int), int8 … uint64, double, float32, bool, timestamp, date, binary, decimal(p, s), list<t>,
    map<k, v>, struct<name: type, …>. A timestamp is in µs, UTC.

    Examples:

      anabranch stream create iot/raw
      anabranch stream create iot/sensors --key device --time at --segments 4 \\
          --schema "device:string, at:timestamp, celsius:double"
      anabranch stream create iot/sensors --schema-from measurements.csv --retain-for 30d
      anabranch stream create iot/clicks --events-per-second 1000 --minimum 2
    """
    from anabranch.cli.show import print_change

    by_rate = rate.policy()
    if by_rate is not None and segments is not None:
        raise InvalidArgument(
            "--segments fixes the number of segments; with a rate, --minimum sets the smallest number"
        )
    if schema is not None and schema_from is not None:
        raise InvalidArgument("pass --schema or --schema-from, not both")
    columns = _columns(schema, schema_from, time)
    with open_catalog() as names:
        names.streams.create(
            stream,
            schema=columns,
            key=key,
            time=time,
            scaling=by_rate or (1 if segments is None else segments),
            tags=parse_pairs(tag, "a tag"),
            retention=policy_from_options(retain_for, retain_bytes, groups=retain_group or ()),
            checks=parse_checks(check) or None,
            exist_ok=exist_ok,
        )
        view = names.streams.view(stream)
    made = "stream exists:" if exist_ok else "created stream"
    print_change(view, as_json, f"{made} '{stream}' with {counted(len(view.current), 'segment')}")


def _columns(text: str | None, file: Path | None, time: str | None) -> pa.Schema | None:
    """The columns written as text, or those of a file; None for a raw stream."""
    if text is not None:
        from anabranch.core.schema_text import parse_schema

        return parse_schema(text)
    if file is None:
        return None
    from anabranch.cli.intake.open import schema_of_file
    from anabranch.cli.intake.times import DEFAULT_READING, as_times

    return as_times(schema_of_file(file), time, DEFAULT_READING)
