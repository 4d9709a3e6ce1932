"""Writes messages before the commit that gives them their places: staged rows, and large events.

Every commit refuses a blob whose `begun_at` lies before the collector's horizon, and such a blob may be collected. The
horizon may be ahead of the clock: after the catalog's clock was set back, or by the time that an answer takes. So a
prewritten blob takes the later of the clock's time and an `Earliest`: the beginning of the lease that holds the
horizon, or the horizon itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Lease
from anabranch.core.checksum import checksum
from anabranch.model.append import BlobEntry, BlobLocation
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

# Returns the earliest time, in µs, at which a blob may begin now.
Earliest: TypeAlias = Callable[[], int]


def since_lease(lease: Lease) -> Earliest:
    """For blobs written under a lease: the horizon does not pass the lease's beginning while it is held."""
    return lambda: lease.begun_at


def since_horizon(catalog: Catalog) -> Earliest:
    """For blobs that no lease protects: the collector's present horizon. Raises what reading the catalog raises."""

    def horizon() -> int:
        with catalog.reading() as reading:
            return reading.horizon()

    return horizon


@dataclass(frozen=True, slots=True)
class PrewrittenMessage:
    """A message that is durable in a blob of its own. It is kept in memory too, because the blob must be written again
    if its commit comes after the collector's horizon has passed it. `location` and `checksum` describe what is stored,
    which may be encrypted."""

    message: pa.Buffer
    blob: BlobEntry
    location: BlobLocation
    checksum: int


def prewrite(
    blobs: Blobs,
    runtime: Runtime,
    message: pa.Buffer,
    *,
    index: Mapping[str, Any] | None = None,
    part: Mapping[str, Any] | None = None,
    not_before: int = 0,
) -> PrewrittenMessage:
    """Writes a message as one durable blob. It begins now, by this clock, or at `not_before` (µs) if that is later.
    `index` and `part` are additional metadata of the blob and of the message. Raises what `Blobs.put` raises."""
    begun_at, name = Micros(max(runtime.clock.now(), not_before)), token(runtime.ids)
    key = commit_key(begun_at, name)
    metadata = {"commit": name, "begun_at": begun_at, "staged": True, **(index or {})}
    parts = [{**(part or {}), "checksum": checksum(message)}]
    framed = frame(metadata, parts, [message], key=key, sealer=runtime.sealer)
    blobs.put(key, framed.chunks)
    location = BlobLocation(framed.offsets[0], framed.lengths[0])
    return PrewrittenMessage(message, BlobEntry(key, framed.size, begun_at), location, framed.checksums[0])
