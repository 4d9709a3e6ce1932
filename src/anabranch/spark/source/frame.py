"""`anabranch.spark.read`: a stream as a DataFrame, its history read directly from Parquet by Spark's own reader."""

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
from anabranch.errors import InvalidArgument, StoreUnavailable
from anabranch.errors.optional import optional
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.names import StreamName
from anabranch.model.seconds import wait_seconds
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.times import TimeRules, to_micros
from anabranch.spark.options import ReadOptions
from anabranch.spark.quoting import quoted
from anabranch.spark.session.s3a import hadoop_path
from anabranch.spark.session.spark_access import configure_access, warn_once
from anabranch.spark.source.history import HistoryPlan, NativeFile, native_types, plan_history
from anabranch.spark.source.leases import keep_renewed
from anabranch.spark.source.reads import WATERMARK, complete_cut, raised_to_head, read_ranges, reads_of
from anabranch.spark.source.row_locations import (
    COMPARED_MAX,
    HASHED_MAX,
    NAME_SQL,
    ROW,
    by_comparison,
    by_file_name,
    by_hash,
    in_pieces,
)
from anabranch.spark.source.scan import columns_to_read
from anabranch.spark.stores import address_options, addresses_of, open_store
from anabranch.spark.types import ADDED, spark_columns, spark_schema
from anabranch.store import Store, StoreAddresses
from anabranch.store.engine_api import APPENDED, Place, TimeKind, to_cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["read"]

HOLD_S: Final = 6 * 3600.0
_LOCAL_BYTES_MAX: Final = 4 * 1024 * 1024  # of uncompacted events embedded in the query instead of read by tasks


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The columns of the result, the columns to read for it, and a condition on the rows (SQL, and as µs bounds)."""

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
    """A stream's events from `start` (default: the head) to before `end` (default: the tail as of now).

    `end` may also be `watermark`: up to where the stream is complete according to its writers.

    The columns are the stream's, or those named in `columns`, then `_segment`, `_offset` and `_appended`, in the types
    of `anabranch.spark.types`. Each event is one row; the rows have no order.

    Spark reads compacted events from their Parquet files, in a folder or in S3. It reads the rest through the store, or
    this call does so at once if it is little. The rest is: events that are not compacted; all events of an encrypted
    store; and files in a bucket that the session can't reach by itself, which are those in Azure's and Google's object
    stores, and those in S3 if the session has no `s3a://`. A warning reports this case.

    The added columns cost nothing in queries that do not use them. In queries that do, filters are not pushed down to
    the files. `between=(from, to)`, which keeps the events whose event time is in `from <= time < to`, always is.

    The DataFrame returns the same events whenever it is used. A lease keeps the files that it reads for `hold_s`
    seconds, or until the session or this process ends. After that, a query over it fails with a missing file once its
    files are compacted again and collected. It fails with `Truncated` if events that were never in a file are
    truncated. It never returns other rows. In both cases call `read` again.

    Raises StoreNotFound, StreamNotFound, Truncated, InvalidArgument and its subclasses, MissingExtra without pyspark,
    StoreUnavailable if this process or Spark is not allowed to read the store's place.
    """
    hold_s = wait_seconds("hold_s", hold_s)
    with optional("Spark", "spark"):
        import pyspark  # noqa: F401

    name = StreamName.parse(stream)
    options = {**address_options(addresses_of(store)), "stream": str(name)}
    opened = open_store(ReadOptions.of(options).store)
    rules = store.runtime.settings.times if isinstance(store, Store) else opened.internals.logs.times
    # The lease comes first: every file that a plan names after it exists for as long as the lease does.
    lease = opened.hold("spark read", str(name)).__enter__()
    held = False
    try:
        opened.notifications.freshen(name)
        complete = complete_cut(opened, name) if end == WATERMARK else None
        view = opened.streams.view(name)
        begin = to_cut(opened.internals.logs, view, HEAD if start is None else start, by=by, rules=rules)
        if complete is None:
            stop = to_cut(opened.internals.logs, view, TAIL if end is None else end, by=by, rules=rules)
        else:
            stop = raised_to_head(view, complete)
        wanted = _wanted(view, columns, between, rules)
        # Spark's Parquet reader has no keys, so the files of an encrypted store are read through the store.
        plain = opened.runtime.sealer is None and native_types(wanted.read)
        files = _History(spark, addresses_of(store))
        history = plan_history(
            opened, view, begin, stop, native=lambda path: plain and files.serves(path), between=wanted.between
        )
        if plain and history.turned_away and files.why_not is not None:
            warn_once(f"the history in {files.shown} is read through Python, which is slower", files.why_not)
        frames = [*_scans(spark, history, wanted), *_rest(spark, opened, view.info, history, wanted)]
        held = bool(history.layers)
    finally:
        if not held:
            lease.__exit__(None, None, None)
    if held:
        keep_renewed(spark, lease, hold_s)
    return reduce(lambda one, other: one.union(other), frames)


def _wanted(
    view: StreamView,
    columns: Sequence[str] | None,
    between: tuple[datetime | int | str, datetime | int | str] | None,
    rules: TimeRules,
) -> _Wanted:
    """What `read` was called with, resolved. Raises SchemaMismatch, InvalidArgument."""
    schema = view.info.schema
    result = columns_to_read(schema, columns)
    spark_columns(result)
    if between is None:
        return _Wanted(result, result, None, None)
    if schema.time is None:
        raise InvalidArgument(f"'{view.info.name}' has no event time to select by")
    low, high = int(to_micros(between[0], rules)), int(to_micros(between[1], rules))
    time = quoted(schema.time)
    condition = f"{time} >= timestamp_micros({low}L) and {time} < timestamp_micros({high}L)"
    needed = result if schema.time in result.names else result.append(schema.columns.field(schema.time))
    return _Wanted(result, needed, (low, high), condition)


class _History:
    """Where the compacted files are, and whether Spark can read them there by itself."""

    def __init__(self, spark: SparkSession, places: StoreAddresses) -> None:
        place = places.history or places.blobs
        self.shown = parse(place).shown if place is not None and is_remote(place) else "the store's folder"
        self.why_not = configure_access(spark, place)

    def serves(self, path: str) -> bool:
        """True if Spark can read the file at this path or URL."""
        return self.why_not is None and ("://" not in path or path.startswith(f"{self.shown}/"))


def _scans(spark: SparkSession, history: HistoryPlan, wanted: _Wanted) -> Iterator[DataFrame]:
    """The history, read by Spark: in as few scans as possible, since the scans have to be united."""
    for layer in history.layers:
        # Only files that also hold other rows are filtered row by row.
        for files in ([f for f in layer if f.whole], [f for f in layer if not f.whole]):
            for appended in dict.fromkeys(file.appended for file in files):
                for some in _distinguishable_groups([file for file in files if file.appended == appended]):
                    yield _scan(spark, some, wanted)


def _distinguishable_groups(files: Sequence[NativeFile]) -> Iterator[Sequence[NativeFile]]:
    """The files in groups, so that one scan can cheaply tell which piece of its group a row belongs to."""
    if sum(len(file.pieces) for file in files) <= COMPARED_MAX:
        if files:
            yield files
        return
    single = [file for file in files if len(file.pieces) == 1]
    yield from (single[first : first + HASHED_MAX] for first in range(0, len(single), HASHED_MAX))
    yield from ([file] for file in files if len(file.pieces) > 1)


def _scan(spark: SparkSession, files: Sequence[NativeFile], wanted: _Wanted) -> DataFrame:
    added = (ADDED[-1], pa.field(ROW, pa.int64()))
    reader = spark.read.schema(spark_schema(pa.schema([*spark_columns(wanted.read), *added])))
    # A missing or damaged file must be an error, whatever the session's settings; times are read without rebasing.
    reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false", datetimeRebaseMode="CORRECTED")
    frame = _opened(reader, [hadoop_path(file.path) for file in files])
    found = by_file_name(files, frame.inputFiles())
    if wanted.condition is not None:
        frame = frame.where(wanted.condition)
    frame = frame.selectExpr("*", NAME_SQL)
    if not all(file.whole for file in files):
        frame = frame.where(in_pieces(found))
    places = by_hash(found) if len(files) > COMPARED_MAX else by_comparison(found)
    names = map(quoted, wanted.result.names)
    return frame.selectExpr(*names, f"{places.segment} as _segment", f"{places.offset} as _offset", _append_time(files))


def _append_time(files: Sequence[NativeFile]) -> str:
    at = files[0].appended
    return APPENDED if at is None else f"timestamp_micros({at}L) as {APPENDED}"


def _opened(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    """The files as a DataFrame. Raises StoreUnavailable if Spark can't read the bucket."""
    from py4j.protocol import Py4JJavaError

    try:
        return reader.parquet(*paths)
    except Py4JJavaError as exc:
        bucket = paths[0].rpartition("/")[0]
        cause = " ".join(str(exc.java_exception).splitlines()[0].split())
        raise StoreUnavailable(
            f"Spark can't read the history in {bucket}: {cause}; its credentials are those of the environment in which "
            "Spark was started, or of the session's own fs.s3a settings"
        ) from exc


def _rest(
    spark: SparkSession, opened: Store, info: StreamInfo, history: HistoryPlan, wanted: _Wanted
) -> Iterator[DataFrame]:
    """The part that Spark does not read from Parquet files; nothing if there is none and the history has files."""
    if not history.rest and history.layers:
        return
    columns = pa.schema([*spark_columns(wanted.read), *ADDED])
    if history.rest_bytes <= _LOCAL_BYTES_MAX:
        batches = read_ranges(reads_of(opened), info.id, history.rest, wanted.read.names, None)
        frame = spark.createDataFrame(pa.Table.from_batches(batches, columns), spark_schema(columns))
    else:
        ranges = [info.id, [[each.segment.packed, each.start, each.stop] for each in history.rest]]
        frame = (
            spark.read.format("anabranch")
            .options(**address_options(addresses_of(opened)))
            .options(stream=str(info.name), columns=json.dumps(wanted.read.names), ranges=json.dumps(ranges))
            .load()
        )
    if wanted.condition is not None:
        frame = frame.where(wanted.condition)
    yield frame.select(*map(quoted, [*wanted.result.names, *(field.name for field in ADDED)]))
