"""Answers of `/query` as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from anabranch.errors import InvalidArgument
from anabranch.query.influxql.statements import Rows
from anabranch.query.influxql.times import UNITS, in_unit, time_text, time_zone

EPOCHS: Final = ("ns", "n", "u", "µ", "us", "ms", "s", "m", "h")


def epoch_of(text: str | None) -> int | None:
    """The unit of times in nanoseconds; None for RFC 3339. Raises InvalidArgument."""
    if not text:
        return None
    if text not in EPOCHS:
        raise InvalidArgument(f"expected epoch as one of {', '.join(EPOCHS)}, got '{text:.20}'")
    return UNITS[text]


def pieces(rows: Rows, size: int | None, epoch: int | None, zone: str | None) -> Iterator[tuple[dict[str, Any], int]]:
    """A series as JSON, in pieces of at most `size` rows (None: as one), and how many rows each has."""
    shown = _shown_time(epoch, zone) if rows.timed else None
    values = iter(rows.values)
    piece = _taken(values, size, shown)
    while True:
        following = _taken(values, size, shown) if size is not None else []
        series: dict[str, Any] = {"name": rows.name} if rows.name else {}
        if rows.tags is not None:
            series["tags"] = rows.tags
        series["columns"] = list(rows.columns)
        if piece:
            series["values"] = piece
        if following:
            series["partial"] = True
        yield series, len(piece)
        if not following:
            return
        piece = following


def encoded(value: dict[str, Any], *, pretty: bool = False) -> bytes:
    """A line of JSON. Numbers that JSON does not have are null."""
    found = msgspec.json.encode(value)
    return (msgspec.json.format(found, indent=4) if pretty else found) + b"\n"


def _taken(values: Iterator[Sequence[Any]], size: int | None, shown: Any) -> list[list[Any]]:
    taken = islice(values, size)
    if shown is None:
        return [list(row) for row in taken]
    return [[shown(row[0]), *row[1:]] for row in taken]


def _shown_time(epoch: int | None, name: str | None) -> Any:
    if epoch is None:
        zone = None if name is None else time_zone(name)
        return lambda ns: time_text(ns, zone)
    return lambda ns: in_unit(ns, epoch)
