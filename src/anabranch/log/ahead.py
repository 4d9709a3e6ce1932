"""Messages made durable ahead of the commit that gives them their places: staged rows, and large events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.blobs.port import Blobs
from anabranch.core.checksum import checksum
from anabranch.model.append import BlobEntry, Place
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class Ahead:
    """A message that is durable in a blob of its own. It is kept in memory too, since the blob has to be written anew
    where its commit comes behind the collector's horizon. `place` and `checksum` are those of what is stored."""

    message: pa.Buffer
    blob: BlobEntry
    place: Place
    checksum: int


def put_ahead(
    blobs: Blobs,
    runtime: Runtime,
    message: pa.Buffer,
    *,
    index: Mapping[str, Any] | None = None,
    part: Mapping[str, Any] | None = None,
    not_before: int = 0,
) -> Ahead:
    """Write a message as one durable blob, begun at `not_before` at the earliest (µs, by this clock). `index` and `part` are
    what it says of itself and of the message. Raises what `Blobs.put` raises."""
    begun_at, name = Micros(max(runtime.clock.now(), not_before)), token(runtime.ids)
    key = commit_key(begun_at, name)
    told = {"commit": name, "begun_at": begun_at, "staged": True, **(index or {})}
    parts = [{**(part or {}), "checksum": checksum(message)}]
    framed = frame(told, parts, [message], key=key, sealer=runtime.sealer)
    blobs.put(key, framed.chunks)
    place = Place(framed.offsets[0], framed.lengths[0])
    return Ahead(message, BlobEntry(key, framed.size, begun_at), place, framed.checksums[0])
