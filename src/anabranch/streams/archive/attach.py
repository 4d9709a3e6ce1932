"""Attaching: Parquet files become a stream where they lie. Only their footers are read, and nothing of them is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from anabranch.blobs.keys import attached_key
from anabranch.blobs.port import Blobs
from anabranch.blobs.summed import file_checksum, footer
from anabranch.core.adoption import Piece, Unplaced, in_order
from anabranch.core.archive import ArchivedFile, ArchivedSegment, ArchivedStream
from anabranch.core.checksum import checksum
from anabranch.core.codec import event_bounds
from anabranch.core.digest import SegmentPart
from anabranch.errors import CorruptArchive, CorruptBlob, InvalidArgument, NotFound, SchemaMismatch
from anabranch.log.parquet import APPENDED, ParquetReader
from anabranch.log.watch import Watch
from anabranch.model.append import Bounds
from anabranch.model.columns import RAW_COLUMNS, RESERVED, TIME_TYPE, stored_type
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import WHOLE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW, StreamSchema
from anabranch.model.stream import Segment
from anabranch.streams.archive.adopt import Lying
from anabranch.streams.archive.files import joined

_TAIL_BYTES: Final = 64 * 1024  # read first of each file: most footers are smaller
_ENDING: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a place is to be attached, and as what: one file where `only` names it; `key` and `time` are columns;
    `source` is the id of one stream where the files hold several. With `checksums` all bytes are summed up."""

    name: StreamName
    id: StreamId
    key: str | None = None
    time: str | None = None
    source: StreamId | None = None
    only: str | None = None
    checksums: bool = False


class Surveyed(NamedTuple):
    """The stream that files are to become, where each of them lies, and a digest of all their footers."""

    stream: ArchivedStream
    files: Mapping[str, Lying]
    digest: str


class _File(NamedTuple):
    name: str
    size: int
    reader: ParquetReader
    lies: Lying


def survey(blobs: Blobs, place: str, attachment: str, wanted: Wanted, now: Micros, progress: Watch) -> Surveyed:
    """What the Parquet files of a place are as a stream.

    Files that a store has written (tier 2, or of an archive) are put in the order of their logs or segments, each of
    which becomes a segment of the whole key space; what two files hold is taken once. Any others are one segment: files
    by name, rows in their order, all appended `now`. `progress` counts files. Raises NotFound, SchemaMismatch,
    InvalidArgument; CorruptArchive, naming a file that is no Parquet file, or positions that no file holds.
    """
    files = _files(blobs, place, attachment, wanted, progress)
    own = all(file.reader.told("parts") is not None for file in files)
    schema = _schema(files, wanted, own=own)

    def events_of(file: _File, piece: Piece) -> Bounds:
        return _event_times(blobs, file, piece, schema)

    try:
        runs = in_order(_pieces(files, own), wanted.source)
    except Unplaced as exc:
        raise CorruptArchive(place, exc.file, exc.why) if exc.file else InvalidArgument(exc.why) from exc
    stream, lying = _stream({file.name: file for file in files}, runs, schema, wanted, now, events_of)
    sums = hashlib.sha256("".join(f"{file.name}\n{file.size} {file.lies.checksum}\n" for file in files).encode())
    return Surveyed(stream, lying, sums.hexdigest())


def _files(blobs: Blobs, place: str, attachment: str, wanted: Wanted, progress: Watch) -> list[_File]:
    """The files with their footers, by name."""
    chosen = _is_data if wanted.only is None else wanted.only.__eq__
    found = sorted(info for info in blobs.list() if chosen(info.key))
    if not found:
        what = "are no Parquet files" if wanted.only is None else f"is no file {wanted.only}"
        raise NotFound(f"there {what} in {place}")
    files = []
    for number, info in enumerate(found, 1):
        key = attached_key(attachment, info.key, footer=not wanted.checksums)
        try:
            tail = _footer(blobs, info.key, info.size)
            sum_ = file_checksum(key, blobs.get(info.key)) if wanted.checksums else checksum(tail)
            reader = ParquetReader(key, tail)
        except CorruptBlob as exc:
            raise CorruptArchive(place, info.key, f"can't be attached: {exc.why}") from exc
        files.append(_File(info.key, info.size, reader, Lying(key, info.size, sum_)))
        progress("footers", number, len(found))
    return files


def _is_data(name: str) -> bool:
    """Names that begin with `_` or `.` are those of other things."""
    return name.endswith(_ENDING) and not any(part.startswith(("_", ".")) for part in name.split("/"))


def _footer(blobs: Blobs, name: str, size: int) -> pa.Buffer:
    if size == 0:
        raise CorruptBlob(name, "it is empty")
    start = max(0, size - _TAIL_BYTES)
    tail = blobs.get(name, start, size - start)
    ending = tail.slice(max(0, tail.size - 8)).to_pybytes()
    length = int.from_bytes(ending[:4], "little") + 8
    if tail.size < length <= size:
        tail = blobs.get(name, size - length, length)
    if ending.endswith(b"PARE"):
        raise CorruptBlob(name, "it is encrypted")
    return footer(name, tail)


def _schema(files: Sequence[_File], wanted: Wanted, *, own: bool) -> StreamSchema:
    """The columns of all files, in the order in which they are first met. Raises SchemaMismatch, InvalidArgument."""
    fields: dict[str, tuple[pa.Field, str]] = {}
    for file in files:
        for field in file.reader.schema:
            if field.name in RESERVED:
                continue
            if len(file.reader.schema.get_all_field_indices(field.name)) > 1:
                raise SchemaMismatch(f"{file.name} has several columns '{field.name}'", column=field.name)
            kind = stored_type(field)
            known, where = fields.setdefault(field.name, (pa.field(field.name, kind), file.name))
            if known.type != kind:
                raise SchemaMismatch(
                    f"column '{field.name}' is {known.type} in {where}, but {kind} in {file.name}", column=field.name
                )
    columns = pa.schema([field for field, _ in fields.values()])
    if own and columns == RAW_COLUMNS and wanted.key is None and wanted.time is None:
        return RAW
    return StreamSchema.typed(columns, wanted.key, wanted.time)


def _pieces(files: Sequence[_File], own: bool) -> list[Piece]:
    if not own:
        return [Piece(file.name, 0, file.reader.rows, None, 0, number) for number, file in enumerate(files)]
    return [_told(file, part) for file in files for part in file.reader.parts()]


def _told(file: _File, part: Mapping[str, Any]) -> Piece:
    """A part of a file that a store wrote."""
    order = int(part["log"] or 0)
    if "segment" in part:
        epoch, _, number = str(part["segment"]).partition(".")
        order = SegmentId(int(epoch), int(number)).packed
    return Piece(
        file.name, int(part["row"]), int(part["rows"]), StreamId(int(part["stream"], 16)), int(part["start"]), order
    )


def _stream(
    files: Mapping[str, _File],
    runs: Sequence[Sequence[Piece]],
    schema: StreamSchema,
    wanted: Wanted,
    now: Micros,
    events_of: Callable[[_File, Piece], Bounds],
) -> tuple[ArchivedStream, Mapping[str, Lying]]:
    """Each run as a segment of the whole key space, one after another."""
    segments: list[ArchivedSegment] = []
    lying: dict[str, Lying] = {}
    latest = now
    for number, run in enumerate(runs):
        ident, offset, reached = SegmentId(number, number), 0, Micros(0)
        archived: list[ArchivedFile] = []
        for piece in run:
            file = files[piece.file]
            name = f"{piece.file}#{piece.row}"
            lying[name] = file.lies._replace(row=piece.row)
            appended = _appended(file, piece, reached, now)
            reached = appended.high or reached
            archived.append(
                ArchivedFile(
                    name,
                    offset,
                    offset + piece.rows,
                    file.size,
                    _logical(file, piece),
                    "",
                    file.lies.checksum,
                    1,
                    appended,
                    events_of(file, piece),
                )
            )
            offset += piece.rows
        latest = max(latest, reached)
        retired = None if number == len(runs) - 1 else number + 1
        part = SegmentPart(ident, WHOLE, 0, offset, "")
        segments.append(ArchivedSegment(Segment(ident, WHOLE, retired, 0), part, tuple(archived)))
    cuts = [StreamCut.of(wanted.id, {each.segment.id: at}) for each, at in ((segments[0], 0), (segments[-1], offset))]
    stream = ArchivedStream(
        wanted.name,
        wanted.id,
        (schema,),
        {},
        now,
        False,
        len(runs) - 1,
        len(runs),
        latest,
        cuts[0],
        cuts[1],
        tuple(segments),
        {},
    )
    return stream, lying


def _groups(file: _File, piece: Piece) -> range:
    """The row groups that hold a piece's rows."""
    starts = [0]
    for group in range(file.reader.metadata.num_row_groups):
        starts.append(starts[-1] + file.reader.metadata.row_group(group).num_rows)
    held = [i for i in range(len(starts) - 1) if starts[i] < piece.row + piece.rows and starts[i + 1] > piece.row]
    return range(held[0], held[-1] + 1) if held else range(0)


def _logical(file: _File, piece: Piece) -> int:
    return sum(int(file.reader.metadata.row_group(group).total_byte_size) for group in _groups(file, piece))


def _appended(file: _File, piece: Piece, reached: Micros, now: Micros) -> Bounds:
    """Append times as the footer tells them. Of rows that follow others they are not earlier."""
    if file.reader.told("parts") is None:
        return Bounds(now, now)
    told = file.reader.bounds(_groups(file, piece), APPENDED)
    low, high = told.low or now, told.high or now
    return Bounds(max(low, reached), max(high, reached))


def _event_times(blobs: Blobs, file: _File, piece: Piece, schema: StreamSchema) -> Bounds:
    """Event times as the footer tells them; where it does not, the column of times is read."""
    if schema.time is None or schema.time not in file.reader.schema.names:
        return Bounds(None, None)
    groups = _groups(file, piece)
    if file.reader.schema.field(schema.time).type == TIME_TYPE and file.reader.has_bounds(groups, schema.time):
        return file.reader.bounds(groups, schema.time)
    reader = ParquetReader(file.lies.key, blobs.get(file.name))
    columns = pa.schema([schema.columns.field(schema.time)])
    batches = reader.read(piece.row, piece.rows, columns, Micros(0))
    return joined(event_bounds(batch, schema) for batch, _ in batches)
