"""Batches of a call that reads. After a lost connection, the call continues at another broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import Message
from pyarrow import flight

from anabranch.errors import StoreUnavailable
from anabranch.remote.connection import Connection
from anabranch.wire.flight_errors import from_flight


class _Opened(NamedTuple):
    """A call, and its first batch: None if there is none."""

    chunks: Any
    batch: pa.RecordBatch | None
    generation: int


def read_stream(
    connection: Connection, command: Message, received: Callable[[pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    """The batches that `command` asks for. `received` is called with each batch before it is returned, and changes the
    command to ask for the remaining part. Raises what the broker raises; StoreUnavailable."""
    while True:
        opened = connection.retried(lambda: _open(connection, command))
        batch = opened.batch
        try:
            while batch is not None:
                received(batch)
                yield batch
                batch = _next_batch(opened.chunks)
            return
        except StoreUnavailable as exc:
            if type(exc) is not StoreUnavailable:  # an error of the store, which another broker would raise too
                raise
            connection.lost(exc, opened.generation)
        finally:
            cancel(opened.chunks)


def _open(connection: Connection, command: Message) -> _Opened:
    generation = connection.generation
    chunks = connection.channel.read(command)
    return _Opened(chunks, _next_batch(chunks), generation)


def _next_batch(chunks: Any) -> pa.RecordBatch | None:
    chunk = next_chunk(chunks)
    return None if chunk is None else chunk.data


def next_chunk(chunks: Any) -> Any:
    """The next chunk of a call that reads; None at the end. Raises what the broker raised; StoreUnavailable."""
    try:
        return chunks.read_chunk()
    except StopIteration:
        return None
    except Exception as exc:
        raise from_flight(exc) from None


def cancel(chunks: Any) -> None:
    """End a call that reads, whatever its state."""
    with suppress(pa.ArrowException, flight.FlightError, OSError):
        chunks.cancel()
