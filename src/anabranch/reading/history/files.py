"""The Parquet files that hold a stream's history, for engines that read Parquet by themselves.

A file may hold rows of several streams, and a stream may view some rows of a file, none of the others. So each file
comes with the rows that belong to the stream. Nothing is read but the catalog, and the footers of attached files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.blobs.keys import is_attached
from anabranch.blobs.port import Blobs
from anabranch.core import cuts
from anabranch.core.compaction import PARQUET
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.log.parquet.file_format import METADATA_KEY
from anabranch.log.parquet.footer import read_footer
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.model.columns import RESERVED
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView

_ROW: Final = "file_row_number"  # the column that DuckDB adds: the number of a row in its file


class FileRows(NamedTuple):
    """The rows `start <= row < stop` of a file, counted from 0. Row `start` is the event `offset` of the segment."""

    start: int
    stop: int
    segment: SegmentId
    offset: int


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A Parquet file at a path or URL, and those of its rows that belong to the stream, in reading order per segment.

    `columns` are the stream's columns that the file has. A file that the store wrote also has `_appended`, the append
    time of each row; all rows of an attached file were appended at `appended_us` (µs), which is None for others.
    """

    path: str
    columns: pa.Schema
    rows: tuple[FileRows, ...]
    appended_us: int | None = None

    @property
    def events(self) -> int:
        """How many rows belong to the stream."""
        return sum(rows.stop - rows.start for rows in self.rows)


@dataclass(frozen=True, slots=True)
class HistoryFiles(Displayed):
    """The files that hold a part of a stream. `missing` counts its events that are in no Parquet file yet, because they
    were not compacted. `columns` are the stream's present ones."""

    stream: str
    columns: pa.Schema
    files: tuple[HistoryFile, ...]
    missing: int

    @property
    def events(self) -> int:
        """How many events the files hold."""
        return sum(file.events for file in self.files)

    def duckdb_sql(self) -> str:
        """A SELECT for DuckDB that returns these events: the columns, then `_segment`, `_offset` and `_appended`, as
        every read of a stream does. The rows are in no order. Put `CREATE VIEW name AS` before it to make a view; a URL
        of an object store needs DuckDB's httpfs extension. Raises InvalidArgument for columns that DuckDB can't tell
        apart: called `file_row_number`, or differing only in case."""
        names = _distinct([_ROW, *self.columns.names, *RESERVED])
        known = {name for file in self.files for name in file.columns.names}
        columns = [("f." if f.name in known else "NULL AS ") + _quoted(f.name) for f in self.columns]
        if not self.files:
            added = ["NULL::BIGINT AS _segment", "NULL::BIGINT AS _offset", "NULL::TIMESTAMPTZ AS _appended"]
            return f"SELECT {', '.join([*columns, *added])} WHERE false"
        values = [
            f"({_text(file.path)}, {rows.start}, {rows.stop}, {rows.segment.packed}, {rows.offset}, "
            f"{'NULL' if file.appended_us is None else f'make_timestamptz({file.appended_us})'})"
            for file in self.files
            for rows in file.rows
        ]
        file_name = "_file"
        while file_name in names:
            file_name += "_"
        own = any(file.appended_us is None for file in self.files)
        appended = "coalesce(f._appended, r.appended)" if own else "r.appended"
        # A file that was attached twice is listed twice, but each of its rows must meet the list of parts once.
        paths = ",\n  ".join(_text(path) for path in dict.fromkeys(file.path for file in self.files))
        lines = ",\n  ".join(values)
        return (
            f"SELECT {', '.join(columns)},\n"
            f"  r.segment AS _segment, f.{_ROW} - r.start + r.first AS _offset, {appended} AS _appended\n"
            f"FROM read_parquet([\n  {paths}\n], union_by_name = true, hive_partitioning = false,\n"
            f"  filename = {_text(file_name)}, {_ROW} = true) f\n"
            f"JOIN (VALUES\n  {lines}\n) r(path, start, stop, segment, first, appended)\n"
            f"  ON f.{file_name} = r.path AND f.{_ROW} >= r.start AND f.{_ROW} < r.stop"
        )

    def _facts(self) -> dict[str, object]:
        return {"stream": self.stream, "files": len(self.files), "events": self.events, "missing": self.missing}

    __repr__ = Displayed.__repr__


def files_between(logs: LogReader, blobs: Blobs, view: StreamView, start: StreamCut, end: StreamCut) -> HistoryFiles:
    """The files that hold the events between two cuts. Raises InvalidCut, Truncated, StreamNotFound, BlobMissing."""
    found: dict[str, tuple[pa.Schema, list[FileRows], int]] = {}
    missing = 0
    for segment, low, high in cuts.ranges(view, start, end):
        for piece in _pieces(SegmentReader(logs, view, segment), low, high):
            extent, count = piece.extent, piece.stop - piece.start
            if extent.encoding != PARQUET or extent.key is None:
                missing += count
                continue
            row, offset = piece.row, piece.start + piece.shift
            _, rows, _ = found.setdefault(extent.key, (piece.columns, [], extent.appended.low or 0))
            last = rows[-1] if rows else None
            if last and (last.segment, last.stop, last.offset + last.stop - last.start) == (segment, row, offset):
                rows[-1] = last._replace(stop=row + count)
            else:
                rows.append(FileRows(row, row + count, segment, offset))
    files = []
    for key, (columns, rows, appended) in sorted(found.items()):
        own = not is_attached(key) or METADATA_KEY in (read_footer(blobs, key).metadata or {})
        files.append(HistoryFile(blobs.path(key), columns, tuple(rows), None if own else appended))
    return HistoryFiles(str(view.info.name), view.info.schema.columns, tuple(files), missing)


def _pieces(reader: SegmentReader, start: int, stop: int) -> Iterator[PlannedExtent]:
    for page in reader.pages(start, stop):
        yield from page.extents


def _distinct(names: list[str]) -> set[str]:
    """The names as DuckDB compares them, without regard to case. Raises InvalidArgument if two are equal."""
    found: dict[str, str] = {}
    for name in names:
        other = found.setdefault(name.lower(), name)
        if other is not name:
            raise InvalidArgument(
                f"DuckDB can't read the column '{name}' from the files, because it takes it for '{other}'; read the"
                " stream through the store"
            )
    return set(found)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
