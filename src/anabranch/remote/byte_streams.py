"""Byte streams of a store that a broker serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from anabranch.core.byte_stream import BYTES
from anabranch.errors import StreamNotFound, Truncated
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.reading.byte_index import ByteChunk
from anabranch.reading.byte_reader import ByteReader, RawByteReader
from anabranch.remote.read_stream import read_stream
from anabranch.remote.verbs import Caller, Owner
from anabranch.remote.writer import RemoteWriter
from anabranch.store.byte_files import ByteFiles
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.wire.verbs import VERBS
from anabranch.writing.byte_writer import ByteWriter


class RemoteByteStreams(ByteFiles):
    """See `ByteFiles`. A writer's bytes are appended once and without a gap, also where a connection is lost: each
    append has the condition that the earlier bytes were appended."""

    def __init__(self, owner: Owner, streams: Any) -> None:
        self._owner = owner
        self._caller = owner.caller
        self._streams = streams

    def _check_open(self) -> None:
        self._owner.check_open()

    def _reader(self, name: str | StreamName, *, follow: bool) -> ByteReader:
        source = RemoteByteSource(self._caller, _call(self._caller, "open", stream=name))
        return self._owner.keep(ByteReader(RawByteReader(source, source, follow=follow), on_close=self._owner.forget))

    def _writer(self, name: str | StreamName, *, new: bool) -> ByteWriter:
        if new:
            self._create(name, exist_ok=False)
        try:
            claimed = _call(self._caller, "claim", stream=name)
        except StreamNotFound as exc:
            if type(exc) is not StreamNotFound:  # renamed
                raise
            self._create(name, exist_ok=True)
            claimed = _call(self._caller, "claim", stream=name)
        stream, found, position, events, fence, chunk_bytes = claimed
        caller = self._caller
        made = ByteWriter(
            RemoteWriter(caller.connection, caller.runtime, found, byte_fence=fence),
            name=found,
            position=position,
            events=events,
            chunk_bytes=chunk_bytes,
            truncate_before=lambda place: _call(caller, "truncate_before", stream=stream, position=place),
            on_close=self._owner.forget,
        )
        return self._owner.keep(made)

    def _create(self, name: str | StreamName, *, exist_ok: bool) -> None:
        self._streams.create(name, schema=BYTES.columns, time=BYTES.time, exist_ok=exist_ok)


class RemoteByteSource:
    """See `ByteSource` and `ByteTail`."""

    def __init__(self, caller: Caller, stream: StreamId) -> None:
        self._caller = caller
        self._stream = stream
        self._tail = 0
        self.refresh()

    def refresh(self) -> None:
        """See `ByteIndex.refresh`."""
        self.name, self.sealed, self._tail, self.truncated_before = _call(self._caller, "state", stream=self._stream)

    def head(self) -> int:
        """See `ByteIndex.head`."""
        found: int = _call(self._caller, "head", stream=self._stream)
        return found

    def tail(self) -> int:
        """See `ByteIndex.tail`."""
        return self._tail

    def chunks_at(self, position: int) -> Iterator[ByteChunk]:
        """See `ByteIndex.chunks_at`. Continues at another broker where a connection is lost."""
        command = v1.ByteReadCommand(stream_id=self._stream, position=position)

        def received(batch: pa.RecordBatch) -> None:
            command.position = batch.column(0)[-1].as_py() + batch.column(2)[-1].as_buffer().size
            self.truncated_before = max(self.truncated_before, batch.column(1)[-1].as_py())

        found = False
        for batch in read_stream(self._caller.connection, command, received):
            for start, data in zip(batch.column(0).to_pylist(), batch.column(2), strict=True):
                buffer = data.as_buffer()
                found = True
                yield ByteChunk(start, start + buffer.size, buffer)
        if not found:  # all of it was truncated in the meantime
            raise Truncated(self.name, {"byte": self.head()})

    def generation(self) -> int:
        """Always 0: `wait` compares the position of the tail instead."""
        return 0

    def wait(self, since: int, timeout_s: float | None = None) -> bool:
        """Wait until there may be more, at most `timeout_s` seconds."""
        _call(self._caller, "wait", stream=self._stream, tail=self._tail, wait_s=timeout_s)
        return True

    def notify(self) -> None:
        """Nothing: a wait is short."""


def _call(caller: Caller, verb: str, **arguments: Any) -> Any:
    return caller.call(VERBS[f"bytes.{verb}"], arguments)
