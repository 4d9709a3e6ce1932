"""Jobs whose bytes are moved by Spark's tasks: `store.jobs.copy(…, carrier=carrier(spark, source, target))`. Archives and
imports, which know one store only, take it for both.

Each task opens the stores and moves the ranges or files it is given. A task that is repeated, or runs twice at once, finds how
far its ranges have come by the length of their logs, and appends nothing twice. The driver makes the job, holds its
lease and finishes it.

Repeats are found by tasks too: they digest the events, exchange the digests by their values, and each finds the repeats
among those it got. The driver gets a bit for each event of what holds repeats, compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.spark.stores import open_store, places_of
from anabranch.store import Places, Store
from anabranch.streams.jobs.carry import Bundle, carry
from anabranch.streams.jobs.sift import Look, packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCarrier", "carrier"]

_Digests: TypeAlias = tuple[bytes, bytes, bytes]  # low words, high words, ranks: 64 bits each
_Repeats: TypeAlias = tuple[int, bytes]  # how many ranks a look has, and which of them repeat: 64 bits each


def carrier(spark: SparkSession, source: Store | Sequence[Store], target: Store) -> SparkCarrier:
    """Moves the bundles of a job from `source` to `target` on Spark, a task each. Where its sources live in several stores
    these are given in the order in which they come up among them. Raises InvalidArgument for stores that other processes
    can't open, such as one in memory."""
    sources = [source] if isinstance(source, Store) else source
    return SparkCarrier(spark, [places_of(each) for each in sources], places_of(target))


class SparkCarrier:
    """A carrier and a sifter (`streams.jobs`) of one Spark session."""

    def __init__(self, spark: SparkSession, sources: Sequence[Places], target: Places) -> None:
        self._spark = spark
        self._places = tuple(sources), target

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        """Move the bundles, a task each. Raises InvalidArgument for a job of more stores than it knows."""
        if bundles:
            self._need(bundles)
            context = self._spark.sparkContext
            work = _Work(*self._places)
            context.parallelize(list(bundles), len(bundles)).mapPartitions(work).collect()

    def sift(self, looks: Sequence[Look]) -> Mapping[int, bytes]:
        """Find the repeats. Raises as a call. A task holds the digests of one look, or about `limits.SIFT_ROWS` of all."""
        events = sum(look.events for look in looks)
        if not events:
            return {}
        self._need(looks)
        parts = -(-events // limits.SIFT_ROWS)
        digested = self._spark.sparkContext.parallelize(list(looks), len(looks)).mapPartitions(
            _Digesting(*self._places, parts)
        )
        repeats = digested.groupByKey(parts).flatMap(_Comparing([(look.rank, look.events) for look in looks]))
        found: list[tuple[int, bytes]] = repeats.groupByKey(len(looks)).map(_pack).collect()
        return dict(found)

    def _need(self, works: Sequence[Bundle | Look]) -> None:
        stores = max(each.store for each in works) + 1
        if stores > len(self._places[0]):
            raise InvalidArgument(
                f"the job reads {stores} stores, and this carrier knows {len(self._places[0])} of them"
            )


class _Work:
    """What a task does."""

    def __init__(self, sources: Sequence[Places], target: Places) -> None:
        self._sources = sources
        self._target = target

    def __call__(self, bundles: Iterable[Bundle]) -> Iterator[bool]:
        target = open_store(self._target).store
        for bundle in bundles:
            yield carry(bundle, open_store(self._sources[bundle.store]).store.site, target.site)


class _Digesting:
    """What a task does that digests looks: for each of so many parts, the digests that belong to it."""

    def __init__(self, sources: Sequence[Places], target: Places, parts: int) -> None:
        self._sources = sources
        self._target = target
        self._parts = np.uint64(parts)

    def __call__(self, looks: Iterable[Look]) -> Iterator[tuple[int, _Digests]]:
        target = open_store(self._target).store
        for look in looks:
            source = open_store(self._sources[look.store]).store
            found = [
                (low, high, np.arange(first, first + len(low), dtype=np.int64))
                for first, (low, high) in look.digests(source.site, target.site)
            ]
            if not found:
                continue
            low, high, ranks = (np.concatenate(words) for words in zip(*found, strict=True))
            of_part = low % self._parts
            for part in np.unique(of_part):
                mine = of_part == part
                yield int(part), (low[mine].tobytes(), high[mine].tobytes(), ranks[mine].tobytes())


class _Comparing:
    """What a task does that has all digests of some values: the ranks of all but the lowest of each, by their looks,
    which have ranks from where on and how many."""

    def __init__(self, looks: Sequence[tuple[int, int]]) -> None:
        self._looks = looks

    def __call__(self, part: tuple[int, Iterable[_Digests]]) -> Iterator[tuple[int, _Repeats]]:
        read = [[np.frombuffer(words, dtype=np.int64) for words in digests] for digests in part[1]]
        low, high, ranks = (np.concatenate(words) for words in zip(*read, strict=True))
        order = np.lexsort((ranks, high, low))
        low, high, ranks = low[order], high[order], ranks[order]
        repeats = np.sort(ranks[1:][(low[1:] == low[:-1]) & (high[1:] == high[:-1])])
        number = np.searchsorted([rank for rank, _ in self._looks], repeats, side="right") - 1
        for look in np.unique(number):
            rank, events = self._looks[look]
            yield int(look), (events, (repeats[number == look] - rank).tobytes())


def _pack(look: tuple[int, Iterable[_Repeats]]) -> tuple[int, bytes]:
    """A look's repeats as bits."""
    bits: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
    for events, repeats in look[1]:
        bits = np.zeros(events, dtype=np.bool_) if bits is None else bits
        bits[np.frombuffer(repeats, dtype=np.int64)] = True
    assert bits is not None
    return look[0], packed(bits)
