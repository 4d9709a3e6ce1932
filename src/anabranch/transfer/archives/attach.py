"""Attaching: Parquet files become a stream where they lie. Only their footers are read, and nothing is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from anabranch.blobs.file_checksum import file_checksum, footer
from anabranch.blobs.keys import attached_key
from anabranch.blobs.port import Blobs
from anabranch.core import exact
from anabranch.core.checksum import checksum
from anabranch.core.codec import event_bounds
from anabranch.errors import CorruptArchive, CorruptBlob, InvalidArgument, NotFound, SchemaMismatch
from anabranch.log.parquet.bounds import bounded_batches
from anabranch.log.parquet.file_format import APPENDED
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.progress import ProgressCallback
from anabranch.model.append import TimeBounds
from anabranch.model.columns import RAW_COLUMNS, RESERVED, TIME_TYPE, stored_type
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW, StreamSchema
from anabranch.model.stream import Segment
from anabranch.model.times import DEFAULT_RULES, TimeRules
from anabranch.transfer.archives.adopt import FileLocation
from anabranch.transfer.archives.data_files import joined
from anabranch.transfer.archives.digest import SegmentPart
from anabranch.transfer.archives.file_order import FilePiece, FilesFormNoStream, in_order
from anabranch.transfer.archives.format import ArchivedFile, ArchivedSegment, ArchivedStream

_TAIL_BYTES: Final = 64 * 1024  # first read of each file: most footers are smaller
_ENDING: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """What to attach, and as what: only the file `only`, if given; `key` and `time` are columns; `source` is the id of
    one stream if the files hold several. `checksums` computes checksums of all bytes. `rules` says how to treat times
    without a zone and times finer than µs."""

    name: StreamName
    id: StreamId
    key: str | None = None
    time: str | None = None
    source: StreamId | None = None
    only: str | None = None
    checksums: bool = False
    rules: TimeRules = DEFAULT_RULES


class SurveyedFiles(NamedTuple):
    """The stream that files will become, the location of each file, and a digest of all footers."""

    stream: ArchivedStream
    files: Mapping[str, FileLocation]
    digest: str


class _AttachedFile(NamedTuple):
    name: str
    size: int
    reader: ParquetReader
    lies: FileLocation


def survey(
    blobs: Blobs, place: str, attachment: str, request: AttachRequest, now: Micros, progress: ProgressCallback
) -> SurveyedFiles:
    """Read the footers of Parquet files and describe the stream they form.

    Files that a store has written (tier 2, or of an archive) are put in the order of their logs or segments, each of
    which becomes a segment of the whole key space; events that two files hold are taken once. Any other files are one
    segment: files by name, rows in file order, all appended `now`. `progress` counts files. Raises NotFound,
    SchemaMismatch, InvalidArgument; CorruptArchive, naming a file that is not a Parquet file, or positions that no file
    holds.
    """
    files = _files(blobs, place, attachment, request, progress)
    own = all(file.reader.metadata_value("parts") is not None for file in files)
    schema = _schema(files, request, own=own)
    if not own:
        for file in files:
            _check_times(blobs, place, file, schema, request.rules)

    def events_of(file: _AttachedFile, piece: FilePiece) -> TimeBounds:
        return _event_times(blobs, file, piece, schema)

    try:
        runs = in_order(_pieces(place, files, own), request.source)
    except FilesFormNoStream as exc:
        raise CorruptArchive(place, exc.file, exc.why) if exc.file else InvalidArgument(exc.why) from exc
    stream, counts = _stream({file.name: file for file in files}, runs, schema, request, now, events_of)
    sums = hashlib.sha256("".join(f"{file.name}\n{file.size} {file.lies.checksum}\n" for file in files).encode())
    return SurveyedFiles(stream, counts, sums.hexdigest())


def _files(
    blobs: Blobs, place: str, attachment: str, request: AttachRequest, progress: ProgressCallback
) -> list[_AttachedFile]:
    """The files with their footers, by name."""
    chosen = _is_data if request.only is None else request.only.__eq__
    found = sorted(info for info in blobs.list() if chosen(info.key))
    if not found:
        what = "no Parquet files" if request.only is None else f"no file {request.only}"
        raise NotFound(f"found {what} in {place}")
    files = []
    for number, info in enumerate(found, 1):
        key = attached_key(attachment, info.key, footer=not request.checksums)
        try:
            tail = _footer(blobs, info.key, info.size)
            sum_ = file_checksum(key, blobs.get(info.key)) if request.checksums else checksum(tail)
            reader = ParquetReader(key, tail)
        except CorruptBlob as exc:
            raise CorruptArchive(place, info.key, f"can't be attached: {exc.reason}") from exc
        files.append(_AttachedFile(info.key, info.size, reader, FileLocation(key, info.size, sum_)))
        progress("footers", number, len(found))
    return files


def _is_data(name: str) -> bool:
    """Names that begin with `_` or `.` are not data files."""
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


def _schema(files: Sequence[_AttachedFile], request: AttachRequest, *, own: bool) -> StreamSchema:
    """The columns of all files, in order of first appearance. Raises SchemaMismatch, InvalidArgument."""
    fields: dict[str, tuple[pa.Field, str]] = {}
    for file in files:
        for field in file.reader.schema:
            if field.name in RESERVED:
                continue
            if len(file.reader.schema.get_all_field_indices(field.name)) > 1:
                raise SchemaMismatch(f"{file.name} has several columns '{field.name}'", column=field.name)
            kind = stored_type(field)
            first, where = fields.setdefault(field.name, (pa.field(field.name, kind), file.name))
            if first.type != kind:
                raise SchemaMismatch(
                    f"column '{field.name}' is {first.type} in {where}, but {kind} in {file.name}", column=field.name
                )
    columns = pa.schema([field for field, _ in fields.values()])
    if own and columns == RAW_COLUMNS and request.key is None and request.time is None:
        return RAW
    return StreamSchema.typed(columns, request.key, request.time)


def _check_times(blobs: Blobs, place: str, file: _AttachedFile, schema: StreamSchema, rules: TimeRules) -> None:
    """Refuse times that readers would truncate or misinterpret. Reads the ns columns to check. Raises
    SchemaMismatch."""
    columns = {field.name: field.type for field in file.reader.schema if pa.types.is_timestamp(field.type)}
    event_time = columns.get(schema.time) if schema.time is not None else None
    try:
        if event_time is not None and event_time.tz is None and rules.zone_for_naive() != "UTC":
            raise InvalidArgument(
                "attached files are read as they are, so times without a zone in them are UTC; set the time zone to UTC to "
                "attach them, or write them into a stream instead"
            )
        fine = [name for name, kind in columns.items() if kind.unit == "ns" and name in schema.columns.names]
        if not fine or rules.truncate:
            return
        for batch in bounded_batches(file.name, blobs.get(file.name), fine):
            for name in fine:
                zone = columns[name].tz
                exact.cast(pa.chunked_array([batch.column(name)]), pa.timestamp("us", zone))
    except pa.ArrowException as exc:
        raise CorruptArchive(place, file.name, f"can't be attached: {exc}") from exc
    except InvalidArgument as exc:
        raise SchemaMismatch(f"times in {file.name}: {exc}") from exc


def _pieces(place: str, files: Sequence[_AttachedFile], own: bool) -> list[FilePiece]:
    if not own:
        return [FilePiece(file.name, 0, file.reader.rows, None, 0, number) for number, file in enumerate(files)]
    return [_file_piece(place, file, part) for file in files for part in file.reader.parts()]


def _file_piece(place: str, file: _AttachedFile, part: Mapping[str, Any]) -> FilePiece:
    """A part of a file that a store wrote."""
    try:
        order = int(part["log"] or 0)
        if "segment" in part:
            epoch, _, number = str(part["segment"]).partition(".")
            order = SegmentId(int(epoch), int(number)).packed
        stream = StreamId(int(part["stream"], 16))
        return FilePiece(file.name, int(part["row"]), int(part["rows"]), stream, int(part["start"]), order)
    except (KeyError, TypeError, ValueError) as exc:
        raise CorruptArchive(place, file.name, "can't be attached: its metadata does not name its parts") from exc


def _stream(
    files: Mapping[str, _AttachedFile],
    runs: Sequence[Sequence[FilePiece]],
    schema: StreamSchema,
    request: AttachRequest,
    now: Micros,
    events_of: Callable[[_AttachedFile, FilePiece], TimeBounds],
) -> tuple[ArchivedStream, Mapping[str, FileLocation]]:
    """Each run as a segment of the whole key space, one after another."""
    segments: list[ArchivedSegment] = []
    counts: dict[str, FileLocation] = {}
    latest = now
    for number, run in enumerate(runs):
        ident, offset, reached = SegmentId(number, number), 0, Micros(0)
        archived: list[ArchivedFile] = []
        for piece in run:
            file = files[piece.file]
            name = f"{piece.file}#{piece.row}"
            counts[name] = file.lies._replace(row=piece.row)
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
        part = SegmentPart(ident, FULL_KEY_RANGE, 0, offset, "")
        segments.append(ArchivedSegment(Segment(ident, FULL_KEY_RANGE, retired, 0), part, tuple(archived)))
    cuts = [StreamCut.of(request.id, {each.segment.id: at}) for each, at in ((segments[0], 0), (segments[-1], offset))]
    stream = ArchivedStream(
        request.name,
        request.id,
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
    return stream, counts


def _groups(file: _AttachedFile, piece: FilePiece) -> range:
    """The row groups that hold a piece's rows."""
    starts = [0]
    for group in range(file.reader.metadata.num_row_groups):
        starts.append(starts[-1] + file.reader.metadata.row_group(group).num_rows)
    held = [i for i in range(len(starts) - 1) if starts[i] < piece.row + piece.rows and starts[i + 1] > piece.row]
    return range(held[0], held[-1] + 1) if held else range(0)


def _logical(file: _AttachedFile, piece: FilePiece) -> int:
    return sum(int(file.reader.metadata.row_group(group).total_byte_size) for group in _groups(file, piece))


def _appended(file: _AttachedFile, piece: FilePiece, reached: Micros, now: Micros) -> TimeBounds:
    """The bounds of append times in the footer; never earlier than those of the rows before."""
    if file.reader.metadata_value("parts") is None:
        return TimeBounds(now, now)
    append_times = file.reader.bounds(_groups(file, piece), APPENDED)
    low, high = append_times.low or now, append_times.high or now
    return TimeBounds(max(low, reached), max(high, reached))


def _event_times(blobs: Blobs, file: _AttachedFile, piece: FilePiece, schema: StreamSchema) -> TimeBounds:
    """The bounds of event times in the footer; if it has none, reads the time column."""
    if schema.time is None or schema.time not in file.reader.schema.names:
        return TimeBounds(None, None)
    groups = _groups(file, piece)
    if file.reader.schema.field(schema.time).type == TIME_TYPE and file.reader.has_bounds(groups, schema.time):
        return file.reader.bounds(groups, schema.time)
    reader = ParquetReader(file.lies.key, blobs.get(file.name))
    columns = pa.schema([schema.columns.field(schema.time)])
    batches = reader.read(piece.row, piece.rows, columns, Micros(0))
    return joined(event_bounds(batch, schema) for batch, _ in batches)
