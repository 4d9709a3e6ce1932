"""Leaving out repeats elsewhere: tasks digest what is compared and find the repeats, and what they found travels with the
bundles, a bit for each event.

The catalog is asked here, once and in the order of preference, for what is known to be a repeat; so the tasks find just
what one process finds (`sieve.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from anabranch.core.row_digest import Words
from anabranch.model.ids import LogId, StreamId
from anabranch.streams.jobs.bundles import bundled
from anabranch.streams.jobs.cargo import Cargo
from anabranch.streams.jobs.control import Control
from anabranch.streams.jobs.known import Known
from anabranch.streams.jobs.row import Range
from anabranch.streams.jobs.sieve import Looked, Mask, digests
from anabranch.streams.jobs.site import Site


@dataclass(frozen=True, slots=True)
class Look:
    """Ranges of one stream that a task digests: a small value that travels. Its events have the ranks from `rank` on.
    `known` are, for each range, the offsets that are known to be repeats. The stream lies in the job's store of the number
    `store`, or, where `moved` is false, in its target."""

    number: int
    stream: StreamId
    moved: bool
    ranges: tuple[Range, ...]
    known: tuple[tuple[tuple[int, int], ...], ...]
    columns: pa.Schema
    rank: int
    store: int = 0

    @property
    def events(self) -> int:
        """How many ranks it has."""
        return sum(range_.events for range_ in self.ranges)

    def digests(self, source: Site, target: Site) -> Iterator[tuple[int, tuple[Words, Words]]]:
        """Digests in batches, each with its first rank. Raises as `sieve.digests`."""
        cargo = Cargo(source if self.moved else target, self.stream, ())
        rank = self.rank
        for range_, known in zip(self.ranges, self.known, strict=True):
            for first, words in digests(cargo, range_, known, self.columns):
                yield rank + first - range_.start, words
            rank += range_.events


@runtime_checkable
class Sifter(Protocol):
    """A carrier that finds repeats too."""

    def sift(self, looks: Sequence[Look]) -> Mapping[int, bytes]:
        """Of all that the looks digest, which events repeat one of a lower rank: by the number of the look, `packed`; a
        look without repeats is left out. Raises what digesting raises."""
        ...


class Sifted:
    """What stays of a job's ranges, packed. A value that travels, whole or for some ranges."""

    def __init__(self, stays: Mapping[LogId, bytes], repeats: int) -> None:
        self._stays = dict(stays)
        self.repeats = repeats

    def mask(self, range_: Range) -> Mask:
        """For each event of the range, whether it stays."""
        return unpacked(self._stays[range_.log], range_.events)

    def of(self, ranges: Sequence[Range]) -> Sifted:
        """What stays of these ranges."""
        return Sifted({range_.log: self._stays[range_.log] for range_ in ranges}, 0)


def sift(compared: Sequence[Looked], columns: pa.Schema, sifter: Sifter, control: Control) -> Sifted:
    """Have all that is compared looked at, given in the order of preference. Memory: a bit for each event that is moved,
    compressed. Raises as `Mover.move`."""
    looks: list[Look] = []
    known, rank = Known(), 0
    for looked in compared:
        for ranges in bundled(looked.ranges):
            control.check()
            edges = tuple(tuple(known.look(looked.cargo, range_)) for range_ in ranges)
            whose = looked.cargo.stream, looked.moved
            look = Look(len(looks), *whose, tuple(ranges), edges, columns, rank, looked.store)
            looks.append(look)
            rank += look.events
    found = sifter.sift(looks)
    control.check()
    stays: dict[LogId, bytes] = {}
    repeats = 0
    for look in looks:
        if look.moved:
            whole = _stays(look, found.get(look.number))
            repeats += int((~whole).sum())
            first = 0
            for range_ in look.ranges:
                stays[range_.log] = packed(whole[first : first + range_.events])
                first += range_.events
    return Sifted(stays, repeats)


def packed(bits: Mask) -> bytes:
    """A bit for each event, compressed."""
    return zlib.compress(np.packbits(bits).tobytes(), 1)


def unpacked(data: bytes, count: int) -> Mask:
    """The inverse of `packed`."""
    bits: Mask = np.unpackbits(np.frombuffer(zlib.decompress(data), dtype=np.uint8), count=count).astype(np.bool_)
    return bits


def _stays(look: Look, repeats: bytes | None) -> Mask:
    stays = np.ones(look.events, dtype=np.bool_) if repeats is None else ~unpacked(repeats, look.events)
    first = 0
    for range_, known in zip(look.ranges, look.known, strict=True):
        for start, stop in known:
            stays[first + start - range_.start : first + stop - range_.start] = False
        first += range_.events
    return stays
