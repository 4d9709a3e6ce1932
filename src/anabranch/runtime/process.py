"""What concerns a whole process: its display name, and what its garbage collector leaves alone."""

from __future__ import annotations

import atexit
import gc
import os
import socket


def this_process() -> str:
    """The machine and the process id, as `host:1234`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def freeze_imports() -> None:
    """Exempt what exists now, nearly all of it imported modules, from garbage collection. For processes that are this
    project's own; a library leaves that to its user. A full collection traverses these 60,000 objects and more, and
    for its 30 to 100 ms no thread of the process runs. At the end of the process they are collected as usual; else
    extension modules such as DuckDB's would report them as leaked."""
    gc.freeze()
    atexit.register(gc.unfreeze)
