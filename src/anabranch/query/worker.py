"""The process that runs queries of people who aren't trusted: `python -m anabranch.query.worker`.

It opens the store itself, takes one request after the other from its stdin, and writes results to its stdout. Every request
gets a database of its own. `isolated.py` is the other end, and kills this process at a query's deadline.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from base64 import b64decode
from typing import Any, BinaryIO, Final

import pyarrow as pa

from anabranch.errors import AnabranchError, QueryLimitExceeded
from anabranch.errors.optional import optional
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.query import no_pandas as no_pandas  # before the engine
from anabranch.query.engine import Query
from anabranch.query.sandbox import QueryDatabase, QueryLimits
from anabranch.query.worker_frames import BATCH, DONE, FAILED, HEADER, SCHEMA, TEXT
from anabranch.runtime.settings import Settings
from anabranch.store import Store, connect
from anabranch.wire.errors import error_to_json

with optional("a query", "query"):
    import duckdb

_PARENT_POLL_S: Final = 2.0
# What the interpreter and its libraries may take in addition to the memory of the query.
_OWN_BYTES: Final = 768 << 20


def main() -> None:
    """Serve requests until stdin ends."""
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing else may write to the pipe
    opening = json.loads(_frame(incoming) or b"{}")
    memory = opening["memory_bytes"]
    settings = Settings(maintenance_s=None, scaling_s=None)
    with connect(**opening["store"], settings=settings) as store:
        _die_with_parent(store, os.getppid())
        resource.setrlimit(resource.RLIMIT_DATA, (2 * memory + _OWN_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _send(outgoing, DONE, b"")
        limits = QueryLimits(memory_bytes=memory, spill_bytes=opening["spill_bytes"])
        opened: QueryDatabase | None = QueryDatabase(allow_files=False, limits_=limits)
        while (request := _frame(incoming)) is not None:
            asked = json.loads(request)
            try:
                if "translate" in asked:
                    _translate(asked, outgoing)
                else:
                    database, opened = opened, None
                    _serve(store, limits, database, asked, outgoing)
                _send(outgoing, DONE, b"")
            except AnabranchError as exc:
                _send(outgoing, FAILED, json.dumps(error_to_json(exc)).encode())
            except (MemoryError, pa.ArrowMemoryError):
                error = QueryLimitExceeded("the query needs more memory than it may use", "memory")
                _send(outgoing, FAILED, json.dumps(error_to_json(error)).encode())
            opened = opened or _opened_ahead(limits)
        if opened is not None:
            opened.close()


def _opened_ahead(limits: QueryLimits) -> QueryDatabase | None:
    """The database of the next query, so that this does not wait for it. None: it opens its own, and fails if it can't."""
    try:
        return QueryDatabase(allow_files=False, limits_=limits)
    except (MemoryError, OSError, duckdb.Error):
        return None


def _translate(request: dict[str, Any], outgoing: BinaryIO) -> None:
    from anabranch.query.dialects.translate import translate  # most queries need none

    text = translate(request["translate"], request["dialect"], request["form"])
    _send(outgoing, TEXT, text.encode())


def _serve(
    store: Store, limits: QueryLimits, opened: QueryDatabase | None, request: dict[str, Any], outgoing: BinaryIO
) -> None:
    allowed = {StreamName.parse(name): StreamId(stream) for name, stream in request["streams"].items()}
    with Query(store, limits=limits, allowed=allowed, opened=opened) as query:
        if request["describe"]:
            schema, count = query.describe(request["sql"], _parameters(request["parameters"]))
            _send(outgoing, SCHEMA, count.to_bytes(4, "little") + schema.serialize().to_pybytes())
            return
        result = query.run(request["sql"], _parameters(request["parameters"]))
        schema = pa.schema([]) if result is None else result.schema
        _send(outgoing, SCHEMA, bytes(4) + schema.serialize().to_pybytes())
        for batch in result or ():
            _send(outgoing, BATCH, batch.serialize())


def _parameters(encoded: str | None) -> list[object]:
    """The values of the first row of an Arrow stream."""
    if encoded is None:
        return []
    table = pa.ipc.open_stream(b64decode(encoded)).read_all()
    return [column[0].as_py() for column in table.columns]


def _die_with_parent(store: Store, parent: int) -> None:
    """End this process soon after the one that started it, also in the middle of a query."""

    def watch() -> None:
        while os.getppid() == parent:
            store.runtime.tasks.sleep(_PARENT_POLL_S)
        os._exit(1)

    store.runtime.tasks.spawn("query-parent", watch)


def _frame(incoming: BinaryIO) -> bytes | None:
    head = incoming.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    return incoming.read(HEADER.unpack(head)[1])


def _send(outgoing: BinaryIO, kind: bytes, body: Any) -> None:
    view = memoryview(body).cast("B")
    outgoing.write(HEADER.pack(kind, len(view)))
    while view:  # a pipe takes part of it
        view = view[outgoing.write(view) :]


if __name__ == "__main__":
    main()
