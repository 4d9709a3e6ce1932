"""The producers of a store's streams: open, list and remove them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from anabranch import limits
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.display import Displayed
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.store.parts import StoreContext
from anabranch.streams.arguments import StreamKey
from anabranch.streams.manager import Streams
from anabranch.writing.producer import Producer
from anabranch.writing.producer_claim import OpenedProducer, open_producer
from anabranch.writing.writer import Writer


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer of a stream: its epoch, the number of its last append in that epoch (-1: none yet), and the time of that
    append, or since then, when it was opened."""

    name: str
    epoch: int
    last_sequence: int
    seen_at: Micros


class OpenProducerWriter(Protocol):
    """Opens a writer for a producer; see `Store.writer`."""

    def __call__(self, stream: StreamId, *, name: str, producer: OpenedProducer) -> Writer: ...


class Producers(Displayed):
    """The producers of a store's streams."""

    def __init__(self, parts: StoreContext, streams: Streams, open_writer: OpenProducerWriter) -> None:
        self._parts = parts
        self._streams = streams
        self._open_writer = open_writer

    def open(self, stream: StreamKey, name: str, *, epoch: int | None = None) -> Producer:
        """See `Store.producer`."""
        opened, shown = self.claim(stream, name, epoch)
        open_writer = partial(self._open_writer, opened.stream, name=shown, producer=opened)
        parts = self._parts
        producer = Producer(parts.catalog, parts.runtime, opened, open_writer, parts.forget)
        parts.keep(producer)
        return producer

    def claim(self, stream: StreamKey, name: str, epoch: int | None) -> tuple[OpenedProducer, str]:
        """Open or take over a producer, for a writer; also returns the stream's name."""
        self._parts.check_open()
        info = self._streams.get(stream)
        reject_byte_stream(info)
        return open_producer(self._parts.catalog, self._parts.runtime, info.id, name, epoch), str(info.name)

    def list(self, stream: str | StreamName) -> builtins.list[ProducerInfo]:
        """All producers that ever appended to the stream, by name. Raises StreamNotFound."""
        self._parts.check_open()
        ident = self._streams.get(stream).id
        found: builtins.list[ProducerInfo] = []
        after = ""
        with self._parts.catalog.reading() as txn:
            while page := txn.producers(ident, after, limits.PRODUCERS_PAGE):
                found += [ProducerInfo(name, each.epoch, each.last, each.seen_at) for name, each in page]
                after = page[-1][0]
        return found

    def drop(self, stream: str | StreamName, name: str) -> bool:
        """Remove a producer that will never append again: a repeat of one of its appends would be appended again. False if
        the stream has none of this name. Raises StreamNotFound."""
        self._parts.check_open()
        ident = self._streams.get(stream).id
        with self._parts.catalog.writing(ident) as txn:
            return txn.drop_producer(ident, name)
