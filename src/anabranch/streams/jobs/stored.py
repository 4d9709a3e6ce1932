"""What a step of a job has made durable, before a transaction appends it."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.model.append import Bounds, Place
from anabranch.model.ids import Micros
from anabranch.streams.jobs.cargo import Run


class Stored(NamedTuple):
    """A run as it lies in the target: in the blob of its step, or inlined as `data`."""

    run: Run
    encoding: str
    place: Place
    version: int
    checksum: int
    appended: Bounds
    data: bytes | None = None


class Lasting(NamedTuple):
    """A durable blob of the target."""

    key: str
    size: int
    begun_at: Micros
    encoding: str
