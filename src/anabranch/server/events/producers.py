"""Appends of producers: a producer's id, epoch and sequence number the requests, and each takes effect once, whichever
broker gets it and however often."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import NamedTuple, TypeVar

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamInfo
from anabranch.server.load.stream_loads import Sampled, StreamLoads, number_label, sample_of_repeat
from anabranch.store.facade import Store
from anabranch.writing.producer import Producer, ProducerResult

R = TypeVar("R")


class Numbered(NamedTuple):
    """The producer of a request, and the request's number in it."""

    name: str
    epoch: int
    sequence: int


class ProducedBatch(NamedTuple):
    """The result of a producer's append, and the sample of the events that the stream kept; None if it kept all."""

    result: ProducerResult
    sampled: Sampled | None


class OpenProducers:
    """The producers of recent requests. Thread-safe: appends are made in threads."""

    def __init__(self, store: Store, loads: StreamLoads) -> None:
        self._store = store
        self._loads = loads
        self._lock = Lock()
        self._open: OrderedDict[tuple[StreamId, str, int], Producer] = OrderedDict()

    def append(self, info: StreamInfo, number: Numbered, batch: pa.RecordBatch | pa.Table) -> ProducedBatch:
        """Append under its number the events of a batch that the stream keeps. Returns once they are durable. Raises
        OutOfSequence, Fenced, RateLimited, and what `Producer.append` raises."""
        return self.begin(info, number, batch)()

    def begin(
        self, info: StreamInfo, number: Numbered, batch: pa.RecordBatch | pa.Table
    ) -> Callable[[], ProducedBatch]:
        """Accept a batch under its number; returns a function that waits until it is durable. Both raise as
        `append` does."""
        key = (info.id, number.name, number.epoch)
        producer = self._get(key, info, number)

        def call(work: Callable[[], R]) -> R:
            try:
                return work()
            except BaseException:
                self._drop(key, producer)
                raise

        label = number_label(number.name, number.epoch, number.sequence)
        thinned, sampled = self._loads.thin(info.id, batch, number=label)
        ack = call(lambda: producer.append(thinned, sequence=number.sequence))

        def wait() -> ProducedBatch:
            result = call(lambda: ack.result(limits.TASK_END_S))
            if result.duplicate:
                return ProducedBatch(result, sample_of_repeat(batch.num_rows, result.events or 0, label))
            return ProducedBatch(result, sampled)

        return wait

    def close(self) -> None:
        """Close all producers once the batches that they accepted are durable. May be called again."""
        with self._lock:
            producers = list(self._open.values())
            self._open.clear()
        for producer in producers:
            _close_quietly(producer)

    def _get(self, key: tuple[StreamId, str, int], info: StreamInfo, number: Numbered) -> Producer:
        with self._lock:
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                return found
        opened = self._store.producer(info.name, number.name, epoch=number.epoch)
        oldest: Producer | None = None
        with self._lock:
            present = self._open.setdefault(key, opened)
            if len(self._open) > limits.HTTP_WRITERS_MAX:
                _, oldest = self._open.popitem(last=False)
        for spare in (oldest, None if present is opened else opened):
            if spare is not None:
                _close_quietly(spare)
        return present

    def _drop(self, key: tuple[StreamId, str, int], producer: Producer) -> None:
        with self._lock:
            if self._open.get(key) is producer:
                del self._open[key]
        _close_quietly(producer)


def _close_quietly(producer: Producer) -> None:
    with suppress(AnabranchError):  # the request that caused the error got it as its answer
        producer.close()
