"""A result as an Arrow IPC stream."""

from __future__ import annotations

import pyarrow as pa

from anabranch.cli.render.sink import Sink
from anabranch.errors import InvalidArgument

__all__ = ["Arrow"]


class Arrow:
    """Prints an Arrow IPC stream."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        if sink.terminal:
            raise InvalidArgument("an Arrow stream is binary: send it to a program, or to a file with --output")
        self._out = sink.file
        self._schema = schema
        self._sent = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._send_schema()
        self._out.write(batch.serialize())
        self._out.flush()

    def _send_schema(self) -> None:
        if not self._sent:
            self._out.write(self._schema.serialize())
            self._sent = True

    def close(self) -> None:
        self._send_schema()
        self._out.write(b"\xff\xff\xff\xff\x00\x00\x00\x00")  # the end marker of an IPC stream
        self._out.flush()
