"""Appends of producers: the headers `Producer-Id`, `Producer-Epoch` and `Producer-Seq` number the requests, and each takes
effect once, whichever broker gets it and however often."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from starlette.datastructures import Headers

from anabranch import limits
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamInfo
from anabranch.store.facade import Store
from anabranch.writing.producer import Producer, ProducerResult

_NAMES: Final = ("producer-id", "producer-epoch", "producer-seq")


class Numbered(NamedTuple):
    """The producer of a request, and the request's number in it."""

    name: str
    epoch: int
    sequence: int


def numbered(headers: Headers) -> Numbered | None:
    """What the producer headers say; None if there are none. Raises InvalidArgument if some are missing or wrong."""
    found = [headers.get(name) for name in _NAMES]
    if found == [None, None, None]:
        return None
    name, epoch, sequence = found
    if not name or epoch is None or sequence is None:
        raise InvalidArgument("Producer-Id, Producer-Epoch and Producer-Seq come together")
    return Numbered(name, _number("Producer-Epoch", epoch), _number("Producer-Seq", sequence))


class OpenProducers:
    """The producers that requests came from lately. Thread-safe: appends are made in threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._open: OrderedDict[tuple[StreamId, str, int], Producer] = OrderedDict()

    def append(self, info: StreamInfo, number: Numbered, batch: pa.RecordBatch | pa.Table) -> ProducerResult:
        """Append a batch under its number; returns once it is durable. Raises OutOfSequence, Fenced, and what
        `Producer.append` raises."""
        key = (info.id, number.name, number.epoch)
        producer = self._get(key, info, number)
        try:
            return producer.append(batch, sequence=number.sequence).result(limits.TASK_END_S)
        except BaseException:
            self._drop(key, producer)
            raise

    def close(self) -> None:
        """Close all, once what they accepted is durable. May be called again."""
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
        made = self._store.producer(info.name, number.name, epoch=number.epoch)
        oldest: Producer | None = None
        with self._lock:
            present = self._open.setdefault(key, made)
            if len(self._open) > limits.HTTP_WRITERS_MAX:
                _, oldest = self._open.popitem(last=False)
        for spare in (oldest, None if present is made else made):
            if spare is not None:
                _close_quietly(spare)
        return present

    def _drop(self, key: tuple[StreamId, str, int], producer: Producer) -> None:
        with self._lock:
            if self._open.get(key) is producer:
                del self._open[key]
        _close_quietly(producer)


def producer_answer(number: Numbered, result: ProducerResult) -> bytes:
    """`{"events": N, "ranges": […], "sequence": N, "duplicate": …}`; of a repeat whose first answer is no longer known,
    `events` is null."""
    ranges = [{"segment": str(each.segment), "start": each.start, "stop": each.stop} for each in result.ranges]
    found: dict[str, Any] = {"events": result.events, "ranges": ranges}
    return msgspec.json.encode({**found, "sequence": number.sequence, "duplicate": result.duplicate})


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"{name} is a whole number from 0 on, not '{text:.50}'")
    return int(text)


def _close_quietly(producer: Producer) -> None:
    with suppress(AnabranchError):  # it was answered to the request that caused it
        producer.close()
