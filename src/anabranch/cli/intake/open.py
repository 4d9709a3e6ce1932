"""Chooses how a file or pipe is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import add
from pathlib import Path, PurePath
from typing import Final, Protocol

import pyarrow as pa

from anabranch.cli.formats import FileFormat
from anabranch.cli.intake.arrow_files import open_arrow, open_parquet
from anabranch.cli.intake.batch import BadRow, IntakeBatch
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.csv_records import read_csv_records
from anabranch.cli.intake.infer import infer_csv, infer_json, infer_json_block
from anabranch.cli.intake.json_lines import read_json_lines
from anabranch.cli.intake.source import BadInput, IntakeSource, LineBlocks, Lines
from anabranch.cli.intake.times import DEFAULT_READING, TimeReading
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.model.schema import RAW, StreamSchema
from anabranch.runtime.clock import SystemClock

_ENDINGS: Final = {
    ".jsonl": FileFormat.jsonl,
    ".ndjson": FileFormat.jsonl,
    ".json": FileFormat.jsonl,
    ".csv": FileFormat.csv,
    ".tsv": FileFormat.csv,
    ".tab": FileFormat.csv,
    ".parquet": FileFormat.parquet,
    ".pq": FileFormat.parquet,
    ".arrow": FileFormat.arrow,
    ".arrows": FileFormat.arrow,
    ".feather": FileFormat.arrow,
    ".txt": FileFormat.lines,
    ".log": FileFormat.lines,
}
_TAB_ENDINGS: Final = (".tsv", ".tab")


class Intake(Protocol):
    """One input, which can be read once."""

    def schema(self, *, skip_bad: bool = False) -> pa.Schema | None:
        """The columns inferred from the input; None for plain lines. Raises BadInput, unless `skip_bad`, if a row from
        which they are inferred can't be read; InvalidArgument."""
        ...

    def batches(self, columns: TargetColumns) -> Iterator[IntakeBatch | BadRow]:
        """Yields its rows for a stream of these columns, in order, and those that can't be read in their places. Raises
        BadInput if nothing after the rows so far can be read, InvalidArgument."""
        ...


def open_intake(
    source: IntakeSource,
    given: FileFormat | None,
    *,
    present: StreamSchema | None,
    delimiter: str | None = None,
    now: Callable[[], Micros] | None = None,
    times: TimeReading = DEFAULT_READING,
) -> Intake:
    """Returns the intake for a source. Its format is the given one (`given`), else the one of the name's ending, else
    the one that the existing stream (`present`) suggests: JSON lines for a typed stream, plain lines for a raw one.
    For a new stream it is JSON lines if the first character is a brace. `times` says how times are read."""
    ending = PurePath(source.format_name).suffix
    kind = given or _ENDINGS.get(ending)
    if kind is FileFormat.parquet:
        return open_parquet(source, times)
    if kind is FileFormat.arrow:
        return open_arrow(source, times)
    blocks = LineBlocks(source, quoted=kind is FileFormat.csv)
    if kind is None:
        kind = _guess(blocks, present)
    if kind is FileFormat.csv:
        return _Csv(blocks, source.name, _delimiter(delimiter, ending), times)
    if kind is FileFormat.jsonl:
        return _Json(blocks, source.name, times)
    return _PlainLineIntake(blocks, now or SystemClock().now)


def schema_of_file(path: Path) -> pa.Schema:
    """Returns the columns of a file. Raises InvalidArgument."""
    with IntakeSource(path) as source:
        try:
            schema = open_intake(source, None, present=None).schema()
        except BadInput as exc:
            raise InvalidArgument(f"{path}, {exc}") from exc
    if schema is None:
        raise InvalidArgument(f"{path} holds plain lines, which have no columns")
    return schema


def _delimiter(given: str | None, ending: str) -> str:
    if given is None:
        return "\t" if ending in _TAB_ENDINGS else ","
    delimiter = "\t" if given in ("\\t", "tab") else given
    if len(delimiter) != 1:
        raise InvalidArgument(f"expected a delimiter of one character, or \\t for a tab; got '{given}'")
    return delimiter


def _guess(blocks: LineBlocks, present: StreamSchema | None) -> FileFormat:
    if present is not None:
        return FileFormat.lines if present.raw else FileFormat.jsonl
    first = blocks.peek()
    return FileFormat.jsonl if first is not None and first.data.lstrip().startswith(b"{") else FileFormat.lines


class _Json:
    def __init__(self, blocks: LineBlocks, name: str, times: TimeReading) -> None:
        self._blocks = blocks
        self._name = name
        self._times = times

    def schema(self, *, skip_bad: bool = False) -> pa.Schema:
        return infer_json(self._blocks, self._name, skip_bad=skip_bad)

    def batches(self, columns: TargetColumns) -> Iterator[IntakeBatch | BadRow]:
        return read_json_lines(self._blocks, columns, self._times, infer=self._infer_new)

    def _infer_new(self, block: Lines) -> pa.Schema:
        try:
            return infer_json_block(block, self._name)
        except InvalidArgument as exc:
            raise InvalidArgument(
                f"the types of new columns can't be inferred: {exc.__cause__ or exc}; add them with: anabranch stream evolve"
            ) from exc


class _Csv:
    def __init__(self, blocks: LineBlocks, name: str, delimiter: str, times: TimeReading) -> None:
        self._blocks = blocks
        self._name = name
        self._times = times
        self._delimiter = delimiter

    def schema(self, *, skip_bad: bool = False) -> pa.Schema:
        return infer_csv(self._blocks, self._name, self._delimiter)

    def batches(self, columns: TargetColumns) -> Iterator[IntakeBatch | BadRow]:
        if columns.grow and self._blocks.peek() is not None:
            columns.add(infer_csv(self._blocks, self._name, self._delimiter, lacking=columns.lacking))
        return read_csv_records(self._blocks, columns, delimiter=self._delimiter, times=self._times)


class _PlainLineIntake:
    """Plain lines: each is the payload of one event of a raw stream, and its event time is when it was read."""

    def __init__(self, blocks: LineBlocks, now: Callable[[], Micros]) -> None:
        self._blocks = blocks
        self._now = now

    def schema(self, *, skip_bad: bool = False) -> None:
        return None

    def batches(self, columns: TargetColumns) -> Iterator[IntakeBatch | BadRow]:
        if not columns.schema.raw:
            names = ", ".join(columns.schema.columns.names)
            raise InvalidArgument(
                f"plain lines go to a raw stream; this one has columns ({names}): pass --format jsonl or csv"
            )
        for block in self._blocks:
            lines = block.data.removesuffix(b"\n").split(b"\n")
            if b"\r" in block.data:
                lines = [line.removesuffix(b"\r") for line in lines]
            arrays = [
                pa.nulls(len(lines), pa.string()),
                pa.repeat(pa.scalar(self._now(), TIME_TYPE), len(lines)),
                pa.array(lines, pa.binary()),
            ]
            yield IntakeBatch(pa.table(arrays, schema=RAW.columns), "line", partial(add, block.first))
