"""The open chunk of a writer, to which single events are added until it is closed."""

from __future__ import annotations

from anabranch.model.ids import StreamId
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime
from anabranch.writing.acknowledgement import Acknowledgement, Waiter
from anabranch.writing.chunk import Chunk, new_chunk
from anabranch.writing.interruptions import as_append_error, may_be_interruption
from anabranch.writing.refusals import Refusals


class ChunkBuffer:
    """Holds the open chunk, and a closed chunk until it is queued. It calls neither the writer nor the queue.

    `lock` orders whatever a writer accepts: it is held while an event is added to the open chunk, and from closing a
    chunk until it, and what comes after it, is in the queue. All methods need it. `bytes` is about the size of the open
    chunk.
    """

    def __init__(self, waiter: Waiter, runtime: Runtime, stream: StreamId, schema: StreamSchema) -> None:
        self.lock = runtime.tasks.lock()
        self.bytes = 0
        self._waiter = waiter
        self._clock = runtime.clock
        self._stream = stream
        self._schema = schema
        self.refusals = Refusals()
        self._closed: Chunk | None = None
        self._interruption: Exception | None = None
        self.chunk: Chunk = self._new()

    def open(self, schema: StreamSchema) -> None:
        """Continue with a chunk of another schema. The present one is empty."""
        self._schema = schema
        self.chunk = self._new()

    def close(self) -> Chunk | None:
        """Close the open chunk and continue with a new one. Returns the closed one, whose `batches` are to be queued, or
        None if it was empty. Until `queued`, returns the same one again, so an interrupted call may be repeated."""
        if self._closed is None:
            if not len(self.chunk):
                return None
            self._closed = self.chunk
        closed = self._closed
        if self.chunk is closed:
            self.chunk = self._new()
            self.bytes = 0
        while closed.batches is None:
            try:
                closed.batches = closed.close(self._clock.now())
            except Exception as exc:
                if self._interruption is None and may_be_interruption(exc):
                    self._interruption = exc  # it was thrown in from outside, unless it is raised again
                    continue
                # Such as out of memory: the callers that wrote these events must be notified.
                closed.acknowledgement.refuse_all(len(closed), as_append_error(exc))
                closed.batches, self._interruption = [], None
        closed.acknowledgement.accepted = len(closed)
        return closed

    def queued(self) -> None:
        """Drop the closed chunk, whose batches are queued. Raises what was thrown in from outside while it was
        closed."""
        self._closed = None
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption

    def _new(self) -> Chunk:
        return new_chunk(self._schema, Acknowledgement(self._stream, self._waiter, self.refusals))
