"""Runs transfer jobs on Spark: `store.jobs.copy(…, carrier=carrier(spark, source, target))`. Archives and imports use
only one store; pass it as both source and target.

Each task opens the stores and moves the ranges or files it is given. A task that is repeated, or runs twice at once,
gets its progress from the length of the logs it writes, so it appends nothing twice. The driver creates the job, holds
its lease and finishes it.

Tasks also find duplicates ("repeats"): they digest the events, shuffle the digests by value, and compare those in each
partition. The driver receives one bit per event, compressed, for each part that contains repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.spark.stores import addresses_of, open_store
from anabranch.spark.worker_access import WorkerAccess
from anabranch.store import Store, StoreAddresses
from anabranch.store.engine_api import Bundle, DigestTask, carry, packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCarrier", "carrier"]

_Digests: TypeAlias = tuple[bytes, bytes, bytes]  # low words, high words, ranks: 64 bits each
_Repeats: TypeAlias = tuple[int, bytes]  # how many ranks a digest task has, and which of them repeat: 64 bits each


def carrier(spark: SparkSession, source: Store | Sequence[Store], target: Store) -> SparkCarrier:
    """A carrier that moves the bundles of a job from `source` to `target` on Spark, one task per bundle. If the job's
    sources are in several stores, pass these in the order in which they first occur among the sources. Raises
    InvalidArgument for stores that other processes can't open, such as one in memory."""
    sources = source if isinstance(source, Sequence) else [source]
    return SparkCarrier(spark, [addresses_of(each) for each in sources], addresses_of(target))


class SparkCarrier:
    """Moves bundles and finds repeated events for a transfer job, on one Spark session."""

    def __init__(self, spark: SparkSession, sources: Sequence[StoreAddresses], target: StoreAddresses) -> None:
        self._spark = spark
        self._places = tuple(sources), target

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        """Move the bundles, one task each. Raises InvalidArgument if the job reads more stores than were given."""
        if bundles:
            self._need(bundles)
            context = self._spark.sparkContext
            context.parallelize(list(bundles), len(bundles)).mapPartitions(_mover(*self._places)).collect()

    def compare_remotely(self, tasks: Sequence[DigestTask]) -> Mapping[int, bytes]:
        """Find the repeated events: for each digest task, by its index, packed bits. Raises as `__call__`.

        A Spark task holds the digests of one digest task, or about `limits.DEDUP_ROWS` of all digests.
        """
        events = sum(task.events for task in tasks)
        if not events:
            return {}
        self._need(tasks)
        parts = -(-events // limits.DEDUP_ROWS)
        digested = self._spark.sparkContext.parallelize(list(tasks), len(tasks)).mapPartitions(
            _digester(*self._places, parts)
        )
        sizes = [(task.rank, task.events) for task in tasks]
        repeats = digested.groupByKey(parts).flatMap(lambda part: _repeats_of(part[1], sizes))
        found: list[tuple[int, bytes]] = repeats.groupByKey(len(tasks)).map(_pack).collect()
        return dict(found)

    def _need(self, works: Sequence[Bundle | DigestTask]) -> None:
        stores = max(each.store for each in works) + 1
        if stores > len(self._places[0]):
            raise InvalidArgument(
                f"the job reads {stores} stores, and this carrier was given {len(self._places[0])} of them"
            )


def _mover(sources: Sequence[StoreAddresses], target: StoreAddresses) -> Callable[[Iterable[Bundle]], Iterator[bool]]:
    """The function that Spark runs in a task to move bundles."""
    access = WorkerAccess(*sources, target)

    def move(bundles: Iterable[Bundle]) -> Iterator[bool]:
        with access.explained():
            opened = open_store(target)
            for bundle in bundles:
                yield carry(bundle, open_store(sources[bundle.store]).job_store, opened.job_store)

    return move


def _digester(
    sources: Sequence[StoreAddresses], target: StoreAddresses, parts: int
) -> Callable[[Iterable[DigestTask]], Iterator[tuple[int, _Digests]]]:
    """The function that Spark runs to digest events. Yields (part, digests); `low % parts` chooses the part."""
    access = WorkerAccess(*sources, target)

    def digest(tasks: Iterable[DigestTask]) -> Iterator[tuple[int, _Digests]]:
        with access.explained():
            opened = open_store(target)
            for task in tasks:
                source = open_store(sources[task.store])
                found = [
                    (low, high, np.arange(first, first + len(low), dtype=np.int64))
                    for first, (low, high) in task.digests(source.job_store, opened.job_store)
                ]
                if not found:
                    continue
                low, high, ranks = (np.concatenate(words) for words in zip(*found, strict=True))
                of_part = low % np.uint64(parts)
                for part in np.unique(of_part):
                    mine = of_part == part
                    yield int(part), (low[mine].tobytes(), high[mine].tobytes(), ranks[mine].tobytes())

    return digest


def _repeats_of(part: Iterable[_Digests], tasks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, _Repeats]]:
    """For each value among the digests of one part, the ranks of all events but the first, grouped by digest task. `tasks` holds
    the first rank and the number of events of each digest task."""
    read = [[np.frombuffer(words, dtype=np.int64) for words in digests] for digests in part]
    low, high, ranks = (np.concatenate(words) for words in zip(*read, strict=True))
    order = np.lexsort((ranks, high, low))
    low, high, ranks = low[order], high[order], ranks[order]
    repeats = np.sort(ranks[1:][(low[1:] == low[:-1]) & (high[1:] == high[:-1])])
    number = np.searchsorted([rank for rank, _ in tasks], repeats, side="right") - 1
    for task in np.unique(number):
        rank, events = tasks[task]
        yield int(task), (events, (repeats[number == task] - rank).tobytes())


def _pack(task: tuple[int, Iterable[_Repeats]]) -> tuple[int, bytes]:
    """The repeats of one digest task as packed bits."""
    bits: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
    for events, repeats in task[1]:
        bits = np.zeros(events, dtype=np.bool_) if bits is None else bits
        bits[np.frombuffer(repeats, dtype=np.int64)] = True
    assert bits is not None
    return task[0], packed(bits)
