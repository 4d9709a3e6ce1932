"""What a step of a job has stored durably, before a transaction appends it."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.model.append import BlobLocation, TimeBounds
from anabranch.model.ids import Micros
from anabranch.transfer.jobs.range_reader import RangeRun


class StoredRun(NamedTuple):
    """A run as stored in the target: in the blob of its step, or inline as `data`."""

    run: RangeRun
    encoding: str
    place: BlobLocation
    version: int
    checksum: int
    appended: TimeBounds
    data: bytes | None = None


class DurableBlob(NamedTuple):
    """A durable blob in the target store."""

    key: str
    size: int
    begun_at: Micros
    encoding: str
