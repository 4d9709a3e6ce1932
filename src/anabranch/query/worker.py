"""The process that runs queries of people who aren't trusted: `python -m anabranch.query.worker`.

It opens the store itself, and answers one request after the other from the pipe that it is given. Every request gets a
database of its own. `isolated.py` is the other end, and kills this process at a query's deadline.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from multiprocessing.connection import Connection
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import AnabranchError, QueryLimitExceeded
from anabranch.errors.optional import optional
from anabranch.query import no_pandas as no_pandas  # before the engine
from anabranch.query.engine import Query
from anabranch.query.isolated import BATCH, DONE, FAILED, HEAD
from anabranch.query.sandbox import QueryDatabase, QueryLimits
from anabranch.runtime.settings import Settings
from anabranch.store import Store, connect
from anabranch.wire.errors import error_to_json

with optional("a query", "query"):
    import duckdb

_PARENT_POLL_S: Final = 2.0
# What the interpreter and its libraries may take in addition to the memory of the query.
_OWN_BYTES: Final = 768 << 20


def main() -> None:
    """Serve requests until the other end of the pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    opening = pipe.recv()
    memory = opening["memory_bytes"]
    settings = Settings(maintenance_s=None, scaling_s=None)
    with connect(**opening["store"], settings=settings) as store:
        _die_with_parent(store, os.getppid())
        resource.setrlimit(resource.RLIMIT_DATA, (2 * memory + _OWN_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _send(pipe, DONE, b"")
        limits = QueryLimits(memory_bytes=memory, spill_bytes=opening["spill_bytes"])
        opened: QueryDatabase | None = QueryDatabase(allow_files=False, limits_=limits)
        while (asked := _request(pipe)) is not None:
            try:
                if "translate" in asked:
                    _translate(asked, pipe)
                else:
                    database, opened = opened, None
                    _serve(store, limits, database, asked, pipe)
                _send(pipe, DONE, b"")
            except AnabranchError as exc:
                _send(pipe, FAILED, json.dumps(error_to_json(exc)).encode())
            except (MemoryError, pa.ArrowMemoryError):
                error = QueryLimitExceeded("the query needs more memory than it may use", "memory")
                _send(pipe, FAILED, json.dumps(error_to_json(error)).encode())
            opened = opened or _open_ahead(limits)
        if opened is not None:
            opened.close()


def _open_ahead(limits: QueryLimits) -> QueryDatabase | None:
    """Opens the database of the next query, so that the query does not wait for it. Returns None if that fails: the
    query then opens a database itself, and reports the error."""
    try:
        return QueryDatabase(allow_files=False, limits_=limits)
    except (MemoryError, OSError, duckdb.Error):
        return None


def _translate(request: dict[str, Any], pipe: Connection) -> None:
    from anabranch.query.dialects.translate import translate  # most queries need none

    text = translate(request["translate"], request["dialect"], request["form"])
    _send(pipe, HEAD, text.encode())


def _serve(
    store: Store, limits: QueryLimits, opened: QueryDatabase | None, request: dict[str, Any], pipe: Connection
) -> None:
    table: pa.Table | None = request["parameters"]
    parameters = [] if table is None else [column[0].as_py() for column in table.columns]
    with Query(store, limits=limits, allowed=request["streams"], opened=opened) as query:
        if request["describe"]:
            schema, count = query.describe(request["sql"], parameters)
            _send(pipe, HEAD, count.to_bytes(4, "little") + schema.serialize().to_pybytes())
            return
        result = query.run(request["sql"], parameters)
        schema = pa.schema([]) if result is None else result.schema
        _send(pipe, HEAD, bytes(4) + schema.serialize().to_pybytes())
        for batch in result or ():
            _send(pipe, BATCH, batch.serialize())


def _die_with_parent(store: Store, parent: int) -> None:
    """End this process soon after the one that started it, also in the middle of a query."""

    def watch() -> None:
        while os.getppid() == parent:
            store.runtime.tasks.sleep(_PARENT_POLL_S)
        os._exit(1)

    store.runtime.tasks.spawn("query-parent", watch)


def _request(pipe: Connection) -> dict[str, Any] | None:
    try:
        return pipe.recv()  # type: ignore[no-any-return]
    except (EOFError, OSError):
        return None


def _send(pipe: Connection, kind: bytes, body: Any) -> None:
    pipe.send_bytes(kind)
    pipe.send_bytes(body)


if __name__ == "__main__":
    main()
