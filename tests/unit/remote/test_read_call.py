"""A read of a broker's stream whose task ends in an unexpected way. Needs no broker: its answers are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import StoreUnavailable
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.remote.read_call import ReadCall
from anabranch.runtime.ports import Runtime
from anabranch.wire.v1 import anabranch_pb2 as v1

OPENED = v1.BatchMetadata(position=str(StreamCut.of(StreamId(1), {SegmentId(0, 0): 0})))


class Chunk:
    def __init__(self, metadata: v1.BatchMetadata) -> None:
        self.app_metadata = pa.py_buffer(metadata.SerializeToString())
        self.data = None


class Broker:
    """What `ReadCall` needs of a connection: each call answers with one of `calls`."""

    def __init__(self, *calls: list[Chunk | Exception]) -> None:
        self.generation = 0
        self.channel = self
        self.schema = pa.schema([("n", pa.int64())])
        self._calls = iter(calls)
        self._chunks: Iterator[Chunk | Exception] = iter(())

    def retried(self, act: Callable[[], Any]) -> Any:
        return act()

    def read(self, command: v1.ReadCommand) -> Broker:
        self._chunks = iter(next(self._calls))
        return self

    def read_chunk(self) -> Chunk:
        found = next(self._chunks)
        if isinstance(found, Exception):
            raise found
        return found

    def cancel(self) -> None:
        pass


def opened(*calls: list[Chunk | Exception]) -> ReadCall:
    return ReadCall(Broker(*calls), Runtime(), v1.ReadCommand())  # type: ignore[arg-type]


def test_the_consumer_gets_an_unexpected_error_and_may_go_on() -> None:
    call = opened([Chunk(OPENED), MemoryError("no memory")], [Chunk(OPENED)])
    with pytest.raises(MemoryError):
        call.next(None, lambda: False, look=True)
    assert call.next(None, lambda: False, look=True) is None
    assert call.exhausted
    call.close()


def test_a_broker_that_ends_the_call_before_it_begins_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        opened([])
