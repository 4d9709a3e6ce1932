"""`anabranch read`: print the events of a stream in the order they were appended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.declare import flag, option
from anabranch.cli.formats import Format
from anabranch.cli.options import FOLLOW_OPTION, STREAM_ARGUMENT, OutputOptions, open_store, split_list
from anabranch.cli.ranges import BY_OPTION, time_kind
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.model.ids import Micros
    from anabranch.reading.reader import Reader
    from anabranch.store import Store


META_OPTION: Final = flag("--meta", "Add _pointer and _appended to each event.")


@dataclass(frozen=True)
class ReadingOptions:
    """Which events are read."""

    start: str = option(
        "--from", "PLACE", "head, tail, a stream cut, an event pointer, a time, or -15m before now.", default="head"
    )
    end: str | None = option("--to", "PLACE", "End before this place; default: the tail as of now.")
    by: str = BY_OPTION
    follow: bool = FOLLOW_OPTION
    limit: int | None = option("--limit -n", "N", "At most this many events.", min=0)
    columns: str | None = option("--columns", "A,B", "Only these columns.")

    def check_format(self, kind: Format) -> None:
        """Raises InvalidArgument for a format that can't be followed."""
        if kind is Format.parquet and self.follow and self.limit is None:
            raise InvalidArgument(
                "a Parquet file is complete only at its end: pass --limit, or another --format to --follow"
            )

    def of_reader(self, opened: Store) -> dict[str, Any]:
        """The arguments of `Store.reader` that these options mean. Raises InvalidArgument."""
        from anabranch.cli.stream_places import parse_place

        now = opened.runtime.clock.now()
        options: dict[str, Any] = {} if self.limit is None else {"batch_rows": max(1, min(self.limit, 65_536))}
        return options | {
            "start": parse_place(self.start, now=now),
            "end": None if self.end is None else parse_place(self.end, now=now),
            "follow": self.follow,
            "columns": split_list("--columns", self.columns) or None,
            "by": time_kind(self.by),
        }

    def print_events(self, reader: Reader, kind: Format, output: Path | None, *, meta: bool) -> None:
        """Print the events of a reader."""
        from anabranch.cli.render.result import render

        visible = _VisibleColumns(reader, meta=meta)
        render(_at_most(visible.batches(), self.limit), visible.schema, kind, output, keep=self.follow)


def read(
    stream: str = STREAM_ARGUMENT,
    *,
    options: ReadingOptions,
    where_time: str | None = option(
        "--where-time", "FROM..TO", "Only events with an event time in this range, TO exclusive."
    ),
    meta: bool = META_OPTION,
    output: OutputOptions,
) -> None:
    """Print the events of a stream.

    Events of one key come in the order in which they were appended. Bytes that are not UTF-8 are printed in base64:
    under NAME_base64 in JSON, after base64: in CSV. If a reader of the output closes it early, as head does, the
    command ends without an error.

    A Parquet file is written in row groups of 64 MiB, in bounded memory, and is complete when the command has ended; so
    it can't --follow without a --limit. A file of --output must be new; if the command fails, it is removed.

    Examples:

      anabranch read iot/sensors --limit 10
      anabranch read iot/sensors --from tail --follow
      anabranch read iot/sensors --from -1h --format csv > last-hour.csv
      anabranch read iot/sensors --where-time 2026-01-01..2026-02-01 --json
      anabranch read iot/sensors --output sensors.parquet
      anabranch read iot/sensors --format parquet | aws s3 cp - s3://bucket/sensors.parquet
    """
    kind = output.kind
    options.check_format(kind)
    with open_store() as opened:
        arguments = options.of_reader(opened)
        if where_time is not None:
            arguments["between"] = _between(where_time, opened.runtime.clock.now())
        with opened.reader(stream, **arguments) as reader:
            options.print_events(reader, kind, output.file, meta=meta)


def _between(text: str, now: Micros) -> tuple[int, int]:
    from anabranch.cli.stream_places import parse_time

    low, dots, high = text.partition("..")
    if not dots or not (low or high):
        raise InvalidArgument(
            f"'{text}' is not a time range: expected FROM..TO, such as 2026-01-01..2026-02-01; either may be empty"
        )
    return (
        int(parse_time(low, now=now)) if low else -(1 << 63),
        int(parse_time(high, now=now)) if high else (1 << 63) - 1,
    )


def _at_most(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    if left == 0:
        return
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


class _VisibleColumns:
    """A reader's batches, reduced to the columns to be shown."""

    def __init__(self, reader: Reader, *, meta: bool) -> None:
        import pyarrow as pa

        self._reader = reader
        self._meta = meta
        self._names = [name for name in reader.schema.names if name not in ("_segment", "_offset", "_appended")]
        fields = [reader.schema.field(name) for name in self._names]
        if meta:
            fields += [pa.field("_pointer", pa.string()), reader.schema.field("_appended")]
        self.schema: pa.Schema = pa.schema(fields)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, in order."""
        import pyarrow as pa

        stream = f"{self._reader.position.stream:016x}"
        for batch in self._reader.batches():
            columns = [batch.column(name) for name in self._names]
            if self._meta:
                places = zip(batch.column("_segment").to_pylist(), batch.column("_offset").to_pylist(), strict=True)
                pointers = [f"{stream}{segment:016x}{offset:016x}" for segment, offset in places]
                columns += [pa.array(pointers, pa.string()), batch.column("_appended")]
            yield pa.record_batch(columns, schema=self.schema)
