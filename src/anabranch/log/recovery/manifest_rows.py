"""Validates the rows of a manifest. A manifest may come from anyone, so no row reaches a catalog unchecked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import error
from typing import Any, Final

import pyarrow as pa

from anabranch.blobs import keys
from anabranch.catalog.state import kinds
from anabranch.catalog.state.kind import Entry
from anabranch.core.compaction import ARROW, GONE, PARQUET
from anabranch.core.json_text import parse_count, parse_json, parse_object
from anabranch.errors import AnabranchError, CorruptBlob
from anabranch.model.append import Batches
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName, check_scope
from anabranch.model.producer import ProducerAnswers

_Row = Mapping[str, Any]
_ASSIGNED_MAX: Final = 1 << 62


def check_row(part: str, table: str, row: _Row) -> None:
    """Raises CorruptBlob, naming the `part`, if a row is not one that a catalog of this store could hold."""
    try:
        _CHECKS[table](row)
    except CorruptBlob:
        raise
    except (
        AnabranchError,
        pa.ArrowException,
        LookupError,
        OSError,
        OverflowError,
        TypeError,
        ValueError,
        error,
    ) as exc:
        raise CorruptBlob(part, f"a row of the table {table} has impossible values ({exc!r})") from exc


def _counts(row: _Row, *names: str) -> None:
    for name in names:
        parse_count(row[name])


def _assigned(row: _Row, name: str) -> None:
    """Checks an id that a catalog assigned by counting: the catalog must be able to continue counting from it."""
    if parse_count(row[name]) > _ASSIGNED_MAX:
        raise ValueError("the id is too large to have been assigned")


def _scope(row: _Row) -> None:
    check_scope(row["name"])
    parse_object(row["tags"])


def _stream(row: _Row) -> None:
    StreamName.parse(f"{row['scope']}/{row['name']}")
    parse_object(row["tags"])
    _counts(row, "id", "schema_version", "version", "epoch", "next_number")


def _schema(row: _Row) -> None:
    _counts(row, "stream", "version")
    columns = pa.ipc.read_schema(pa.py_buffer(row["columns"]))
    for role in (row["key_column"], row["time_column"]):
        if role is not None and role not in columns.names:
            raise ValueError(f"unknown column {role!r:.100}")


def _segment(row: _Row) -> None:
    SegmentId.unpack(parse_count(row["segment"]))
    KeyRange(int(row["low"], 16), int(row["high"], 16))
    _counts(row, "stream", "head")


def _log(row: _Row) -> None:
    _assigned(row, "id")
    _counts(row, "stream", "length", "fence", "low_water", "size")


def _span(row: _Row) -> None:
    _counts(row, "stream", "segment", "offset", "log", "start")
    if row["stop"] is not None:
        _counts(row, "stop")


def _blob(row: _Row) -> None:
    _assigned(row, "id")
    _counts(row, "size")
    if row["encoding"] not in (ARROW, PARQUET):
        raise ValueError(f"unknown encoding {row['encoding']!r:.100}")
    if keys.parse(row["key"]).begun_at != row["begun_at"]:
        raise ValueError("its key names another start time")


def _extent(row: _Row) -> None:
    _counts(row, "log", "start", "stop", "at", "length", "row", "schema", "size_end")
    if row["start"] >= row["stop"] or row["appended_low"] > row["appended_high"]:
        raise ValueError("its end is before its beginning")
    if row["encoding"] not in (ARROW, PARQUET, GONE):
        raise ValueError(f"unknown encoding {row['encoding']!r:.100}")
    if (row["blob"] is not None) + (row["data"] is not None) != (row["encoding"] != GONE):
        raise ValueError("expected its bytes in a blob or in the catalog, or nowhere if its encoding is 'gone'")


def _writer(row: _Row) -> None:
    _counts(row, "log", "next", "fence")
    tuple(Batches(row["recent"]))


def _producer(row: _Row) -> None:
    _counts(row, "stream", "epoch")
    if type(row["last"]) is not int or row["last"] < -1:
        raise ValueError("expected the number of an append to be at least 0")
    answers = ProducerAnswers(row["answers"])
    if ProducerAnswers.of(tuple(answers)) != answers:
        raise ValueError("expected its answers in the packed form of a producer's answers")


def _request(row: _Row) -> None:
    parse_json(row["result"])


def _change(row: _Row) -> None:
    _assigned(row, "sequence")
    parse_object(row["detail"])


def _alias(row: _Row) -> None:
    StreamName.parse(row["name"])
    _counts(row, "stream")


def _state(row: _Row) -> None:
    kinds.decode(Entry(**row))


_CHECKS: Final[Mapping[str, Callable[[_Row], None]]] = {
    "scopes": _scope,
    "streams": _stream,
    "schemas": _schema,
    "segments": _segment,
    "logs": _log,
    "spans": _span,
    "blobs": _blob,
    "extents": _extent,
    "writers": _writer,
    "producers": _producer,
    "requests": _request,
    "changes": _change,
    "aliases": _alias,
    "states": _state,
}
