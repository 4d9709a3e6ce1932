"""Jobs whose bytes are moved by Spark's tasks: `store.jobs.copy(…, carrier=carrier(spark, source, target))`.

Each task opens both stores and moves the ranges it is given. A task that is repeated, or runs twice at once, finds how
far its ranges have come by the length of their logs, and appends nothing twice. The driver makes the job, holds its
lease and finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.spark.stores import open_store, places_of
from anabranch.store import Places, Store
from anabranch.streams.jobs.carry import Bundle, Carrier, carry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["carrier"]


def carrier(spark: SparkSession, source: Store, target: Store) -> Carrier:
    """Moves the bundles of a job from `source` to `target` on Spark, a task each. Raises InvalidArgument for stores that
    other processes can't open, such as one in memory."""
    places = places_of(source), places_of(target)

    def move(bundles: Sequence[Bundle]) -> None:
        if bundles:
            context = spark.sparkContext
            work = _Work(*places)
            context.parallelize(list(bundles), len(bundles)).mapPartitions(work).collect()

    return move


class _Work:
    """What a task does."""

    def __init__(self, source: Places, target: Places) -> None:
        self._source = source
        self._target = target

    def __call__(self, bundles: Iterable[Bundle]) -> Iterator[bool]:
        source, target = open_store(self._source).store, open_store(self._target).store
        for bundle in bundles:
            yield carry(bundle, source.site, target.site)
