"""The daemon from which Spark forks its Python workers; it imports everything once, before the first fork.

Spark starts one such daemon for each kind of worker (planning a read, a batch's commit, tasks, …), and by default
imports everything again in each fork. After each task it also runs a garbage collection, which traverses the 75,000
objects of those imports: 30–50 ms for every task and every commit. Objects frozen before the fork are not traversed
again, and their memory pages stay shared.

Only modules that start no thread may be imported here: a fork keeps only the calling thread.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["be_killed_first", "main", "preload"]


_MODULES: Final = (
    "pyarrow",
    "pandas",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "anabranch.spark.source.source",
    "anabranch.spark.sink",
)

_SCORE: Final = 500  # of 1,000: as if this process took half of the memory more than it does


def preload(*worker_modules: str) -> None:
    """Import what workers of these kinds need, and exempt it from garbage collection."""
    # Arrow includes jemalloc, which otherwise starts a thread when pyarrow is imported.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for module in (*_MODULES, *worker_modules):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Fork workers until Spark closes the standard input, as `pyspark.daemon` does. Never returns."""
    be_killed_first()  # Spark starts another worker
    # Spark passes the worker's module if it is not the default one.
    named = len(sys.argv) > 1 and sys.argv[1].startswith("pyspark")
    preload(sys.argv[1] if named else "pyspark.worker")

    from pyspark import daemon

    serve = daemon.worker

    def serve_quietly(sock: socket.socket, authenticated: bool) -> int:
        # Spark closes the connections of its workers when a query stops or fails. The query itself reports the reason,
        # so the traceback of each worker about its broken pipe is suppressed.
        try:
            return serve(sock, authenticated)
        except BrokenPipeError:
            return 1

    daemon.worker = serve_quietly
    daemon.manager()


def be_killed_first() -> None:
    """Make the kernel, where memory runs out, kill this process and its children before Java, the driver or the host.
    Only for processes that can be replaced, such as Spark's Python workers. Does nothing on systems other than
    Linux."""
    score = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):
        score.write_text(str(max(int(score.read_text()), _SCORE)))


if __name__ == "__main__":
    main()
