"""Calls of the commit function: units as arrays of parameters, and its result as verdicts. The function itself is
functions/append_2.sql."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.model.append import Appended, BlobEntry, Refusal, Refused, Unit, Verdict
from anabranch.model.ids import Micros

_REFUSALS = {refusal.value: refusal for refusal in Refusal}


def call_values(
    units: Sequence[Unit], blobs: Sequence[BlobEntry], now: Micros, *, lock_timeout_ms: int | None
) -> tuple[Any, ...]:
    """The parameters of the statement `append`. `lock_timeout_ms`: how long to wait for one lock while holding
    others; None: the session's setting."""
    parts = [part for unit in units for part in unit.parts]
    ends, end = [], 0
    for unit in units:
        end += len(unit.parts)
        ends.append(end)
    requests = [unit.request for unit in units]
    numbers = {blob.key: number for number, blob in enumerate(blobs, 1)}
    sequences = [part.sequence for part in parts]
    inlined = any(part.data is not None for part in parts)
    return (
        now,
        None if lock_timeout_ms is None else str(lock_timeout_ms),
        _integers(ends),
        requests if any(request is not None for request in requests) else None,
        _integers(part.log for part in parts),
        _integers(part.count for part in parts),
        _integers(part.schema for part in parts),
        _integers(part.location.offset for part in parts),
        _integers(part.location.length for part in parts),
        _integers(part.location.row for part in parts),
        _integers(part.checksum for part in parts),
        _integers(part.size for part in parts),
        _integers(part.bounds.low for part in parts),
        _integers(part.bounds.high for part in parts),
        [None if each is None else each.writer for each in sequences],
        _integers(None if each is None else each.first for each in sequences),
        _integers(None if each is None else each.fence for each in sequences),
        _integers(part.expected for part in parts),
        _integers(part.fence for part in parts),
        _integers(None if part.blob is None else numbers[part.blob] for part in parts),
        [part.data for part in parts] if inlined else None,
        [blob.key for blob in blobs] or None,
        _integers(blob.size for blob in blobs),
        _integers(blob.begun_at for blob in blobs),
        [blob.encoding for blob in blobs] or None,
        *_producer_values(units),
    )


def _producer_values(units: Sequence[Unit]) -> tuple[Any, Any, Any]:
    """For each unit the name of its producer, and its numbers; for each part its place. None where no unit has one."""
    if all(unit.producer is None for unit in units):
        return None, None, None
    names: list[str | None] = []
    numbers: list[int | None] = []
    places: list[int | None] = []
    for unit in units:
        carried = unit.producer
        if carried is None:
            names.append(None)
            numbers += [None] * 4
            places += [None] * (2 * len(unit.parts))
        else:
            names.append(carried.producer)
            numbers += [carried.stream, carried.epoch, carried.first, carried.last]
            places += [number for place in carried.places for number in (place.segment.packed, place.shift)]
    return names, _integers(numbers), _integers(places)


def verdicts(units: Sequence[Unit], row: Sequence[Any] | None) -> tuple[tuple[Verdict, ...], ...]:
    """The function's result: for each unit, one verdict per part."""
    assert row is not None
    each = map(_verdict, *row)
    return tuple(tuple(next(each) for _ in unit.parts) for unit in units)


def _verdict(ready: str, number: int, time: int) -> Verdict:
    if ready == "appended":
        return Appended(number, Micros(time))
    if ready == "duplicate":
        return Appended(number, Micros(time), duplicate=True)
    return Refused(_REFUSALS[ready], number)


def _integers(values: Iterable[int | None]) -> str:
    # Array literals as text are fast to write and to read, and always take the type of the function's parameter.
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
