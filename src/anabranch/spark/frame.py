"""`anabranch.spark.read`: a stream as a DataFrame, its history straight from Parquet by Spark's own reader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.blobs.address import is_remote, parse
from anabranch.errors import InvalidArgument, MissingExtra, StoreUnavailable
from anabranch.log.parquet import APPENDED
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.times import to_micros
from anabranch.readers.place import Place, TimeKind, to_cut
from anabranch.spark.complete import WATERMARK, complete_cut, readable
from anabranch.spark.history import File, History, native_types, plan_history
from anabranch.spark.keeper import keep
from anabranch.spark.options import ReadOptions
from anabranch.spark.places import COMPARED_MAX, HASHED_MAX, NAME_SQL, ROW, compared, hashed, in_pieces, placed
from anabranch.spark.reach import reach, tell_once
from anabranch.spark.s3a import hadoop_path
from anabranch.spark.scan import chosen, read_ranges
from anabranch.spark.stores import Opened, open_store, place_options, places_of
from anabranch.spark.types import ADDED, spark_columns, spark_schema
from anabranch.store import Places, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["read"]

HOLD_S: Final = 6 * 3600.0
_LOCAL_BYTES_MAX: Final = 4 * 1024 * 1024  # of fresh events that travel with the query instead of being read by tasks


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The columns of the result, those that have to be read for it, and a condition on the rows."""

    result: pa.Schema
    read: pa.Schema
    between: tuple[int, int] | None
    condition: str | None


def read(
    spark: SparkSession,
    store: Store | str | os.PathLike[str],
    stream: str | StreamName,
    *,
    start: Place | None = None,
    end: Place | None = None,
    columns: Sequence[str] | None = None,
    between: tuple[datetime | int | str, datetime | int | str] | None = None,
    by: TimeKind = "append",
    hold_s: float = HOLD_S,
) -> DataFrame:
    """A stream's events from `start` (default: the head) to before `end` (default: the tail as of now; `watermark`: up to
    where the stream is complete, as its writers said).

    The columns are the stream's, or those named in `columns`, then `_segment`, `_offset` and `_appended`, in the types
    of `anabranch.spark.types`; each event is one row, in no order. What was compacted, Spark reads from the Parquet
    files, in a folder or in S3; the rest from the store, or, where it is little, right now. The rest is what was not
    compacted, all of a store that is encrypted, and the files in a bucket that the session does not reach by itself: those
    in Azure and Google's store, and in S3 where it knows no `s3a://`, of which a warning tells. The added columns cost
    nothing where a query does not use them; where it does, its filters do not reach the files, but `between=(from, to)`,
    which keeps the events whose event time lies in `from <= time < to`, always does.

    The DataFrame shows the same events whenever it is used. For `hold_s` seconds, or until the session or this
    process ends, a lease keeps the files that it reads. Later, once they were compacted anew and collected, a query
    over it fails with a missing file, as it fails with `Truncated` where events were truncated that were never in a
    file; it never returns other rows. Then read again.

    Raises StoreNotFound, StreamNotFound, Truncated, InvalidArgument and its kinds, MissingExtra without pyspark,
    StoreUnavailable where the store's place does not let this process, or Spark, read it.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError as exc:
        raise MissingExtra("Spark", "spark") from exc

    name = StreamName.parse(stream)
    options = {**place_options(places_of(store)), "stream": str(name)}
    opened = open_store(ReadOptions.of(options).store)
    catalog = opened.store.catalog
    # The lease comes first: every file that a later plan names is then there for as long as it lives.
    lease = opened.store.hold("spark read", str(name)).__enter__()
    held = False
    try:
        opened.store.freshen(name)
        complete = complete_cut(opened, name) if end == WATERMARK else None
        view = opened.store.streams.view(name)
        begin = to_cut(catalog, opened.logs, view, HEAD if start is None else start, by=by)
        if complete is None:
            stop = to_cut(catalog, opened.logs, view, TAIL if end is None else end, by=by)
        else:
            stop = readable(view, complete)
        wanted = _wanted(view, columns, between)
        # Spark's own reader has no keys, so the files of an encrypted store are read through the store.
        plain = opened.store.runtime.sealer is None and native_types(wanted.read)
        files = _History(spark, places_of(store))
        history = plan_history(
            opened, view, begin, stop, native=lambda path: plain and files.serves(path), between=wanted.between
        )
        if plain and history.turned_away and files.why_not is not None:
            tell_once(f"the history in {files.shown} is read through Python, which is slower", files.why_not)
        frames = [*_scans(spark, history, wanted), *_rest(spark, opened, view.info, history, wanted)]
        held = bool(history.layers)
    finally:
        if not held:
            lease.__exit__(None, None, None)
    if held:
        keep(spark, lease, hold_s)
    return reduce(lambda one, other: one.union(other), frames)


def _wanted(
    view: StreamView,
    columns: Sequence[str] | None,
    between: tuple[datetime | int | str, datetime | int | str] | None,
) -> _Wanted:
    """What was asked for. Raises SchemaMismatch, InvalidArgument."""
    schema = view.info.schema
    result = chosen(schema, columns)
    spark_columns(result)
    if between is None:
        return _Wanted(result, result, None, None)
    if schema.time is None:
        raise InvalidArgument(f"'{view.info.name}' has no event time to select by")
    low, high = int(to_micros(between[0])), int(to_micros(between[1]))
    time = _quoted(schema.time)
    condition = f"{time} >= timestamp_micros({low}L) and {time} < timestamp_micros({high}L)"
    needed = result if schema.time in result.names else result.append(schema.columns.field(schema.time))
    return _Wanted(result, needed, (low, high), condition)


class _History:
    """Where compacted files lie, and whether Spark reads them there by itself."""

    def __init__(self, spark: SparkSession, places: Places) -> None:
        place = places.history or places.blobs
        self.shown = parse(place).shown if place is not None and is_remote(place) else "the store's folder"
        self.why_not = reach(spark, place)

    def serves(self, path: str) -> bool:
        """True if Spark can read the file at this path or URL."""
        return self.why_not is None and ("://" not in path or path.startswith(f"{self.shown}/"))


def _scans(spark: SparkSession, history: History, wanted: _Wanted) -> Iterator[DataFrame]:
    """The history, by Spark's reader: in one scan if possible, since each has to be united with the others."""
    for layer in history.layers:
        # Only files that hold other rows too are filtered row by row.
        for files in ([f for f in layer if f.whole], [f for f in layer if not f.whole]):
            for appended in dict.fromkeys(file.appended for file in files):
                for some in _told_apart([file for file in files if file.appended == appended]):
                    yield _scan(spark, some, wanted)


def _told_apart(files: Sequence[File]) -> Iterator[Sequence[File]]:
    """Files in groups whose pieces one scan can tell apart cheaply."""
    if sum(len(file.pieces) for file in files) <= COMPARED_MAX:
        if files:
            yield files
        return
    single = [file for file in files if len(file.pieces) == 1]
    yield from (single[first : first + HASHED_MAX] for first in range(0, len(single), HASHED_MAX))
    yield from ([file] for file in files if len(file.pieces) > 1)


def _scan(spark: SparkSession, files: Sequence[File], wanted: _Wanted) -> DataFrame:
    added = (ADDED[-1], pa.field(ROW, pa.int64()))
    reader = spark.read.schema(spark_schema(pa.schema([*spark_columns(wanted.read), *added])))
    # A file that is gone or damaged must be an error, whatever the session says; and times are what they say they are.
    reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false", datetimeRebaseMode="CORRECTED")
    frame = _opened(reader, [hadoop_path(file.path) for file in files])
    found = placed(files, frame.inputFiles())
    if wanted.condition is not None:
        frame = frame.where(wanted.condition)
    frame = frame.selectExpr("*", NAME_SQL)
    if not all(file.whole for file in files):
        frame = frame.where(in_pieces(found))
    places = hashed(found) if len(files) > COMPARED_MAX else compared(found)
    names = map(_quoted, wanted.result.names)
    return frame.selectExpr(*names, f"{places.segment} as _segment", f"{places.offset} as _offset", _append_time(files))


def _append_time(files: Sequence[File]) -> str:
    at = files[0].appended
    return APPENDED if at is None else f"timestamp_micros({at}L) as {APPENDED}"


def _opened(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    """The files, looked at by Spark. Raises StoreUnavailable where a bucket does not let it."""
    from py4j.protocol import Py4JJavaError

    try:
        return reader.parquet(*paths)
    except Py4JJavaError as exc:
        bucket = paths[0].rpartition("/")[0]
        said = " ".join(str(exc.java_exception).splitlines()[0].split())
        raise StoreUnavailable(
            f"Spark can't read the history in {bucket}: {said}; its credentials are those of the environment in which "
            "Spark was started, or of the session's own fs.s3a settings"
        ) from exc


def _rest(
    spark: SparkSession, opened: Opened, info: StreamInfo, history: History, wanted: _Wanted
) -> Iterator[DataFrame]:
    """What lies in no file of its own."""
    if not history.rest and history.layers:
        return
    columns = pa.schema([*spark_columns(wanted.read), *ADDED])
    if history.rest_bytes <= _LOCAL_BYTES_MAX:
        batches = read_ranges(opened, info.id, history.rest, wanted.read.names, None)
        frame = spark.createDataFrame(pa.Table.from_batches(batches, columns), spark_schema(columns))
    else:
        ranges = [info.id, [[each.segment.packed, each.start, each.stop] for each in history.rest]]
        frame = (
            spark.read.format("anabranch")
            .options(**place_options(places_of(opened.store)))
            .options(stream=str(info.name), columns=json.dumps(wanted.read.names), ranges=json.dumps(ranges))
            .load()
        )
    if wanted.condition is not None:
        frame = frame.where(wanted.condition)
    yield frame.select(*map(_quoted, [*wanted.result.names, *(field.name for field in ADDED)]))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
