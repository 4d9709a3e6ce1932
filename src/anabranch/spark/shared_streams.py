"""Which streams several queries of this driver read, so that they share what they read (`anabranch.spark.source.shared_reads`).

The driver has a folder for it, which its workers on the same machine learn from their environment. It has a folder for each
stream that at least two queries read. Workers on other machines have none, and read by themselves.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from anabranch.catalog.state.codec import stream_id_text
from anabranch.model.ids import StreamId

__all__ = ["make_folder", "shared_folder", "start_reading", "stop_reading"]

_VARIABLE: Final = "ANABRANCH_SHARED_READS"

_readers: Counter[StreamId] = Counter()
_lock = threading.Lock()


@cache
def make_folder() -> None:
    """Make the folder for this process, to be called before Spark starts; it is removed when the process ends. A second call
    does nothing, because a later session has the Java process of the first one, and so its environment."""
    folder = os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="anabranch-reads-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def shared_folder(stream: StreamId) -> Path | None:
    """The folder for a stream of which queries share what they read; None if they don't."""
    folder = _folder(stream)
    return None if folder is None or not folder.is_dir() else folder


def start_reading(streams: Iterable[StreamId]) -> None:
    """A query of this process begins to read these streams."""
    with _lock:
        for stream in streams:
            _readers[stream] += 1
            if _readers[stream] == 2 and (folder := _folder(stream)) is not None:
                with suppress(OSError):  # without the folder each query reads by itself
                    folder.mkdir(mode=0o700, exist_ok=True)


def stop_reading(streams: Iterable[StreamId]) -> None:
    """A query that read these streams has ended."""
    with _lock:
        for stream in streams:
            _readers[stream] -= 1
            if _readers[stream] == 1 and (folder := _folder(stream)) is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _folder(stream: StreamId) -> Path | None:
    root = os.environ.get(_VARIABLE)
    return None if root is None else Path(root) / stream_id_text(stream)
