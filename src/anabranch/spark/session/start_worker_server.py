"""Starts the process from which all Python processes of this program's Spark session are forked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from anabranch.spark.session.home import WORKER_SERVER

__all__ = ["start_worker_server"]

_MODULE: Final = "anabranch.spark.session.worker_server"
# As Spark sets them for its workers. Numpy's library would otherwise start threads, and hashes of texts would differ between
# the workers of two sessions.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


_BACKLOG: Final = 128  # requests that wait while the server imports
_PATH_MAX: Final = 60  # of the folder for temporary files: the path of a Unix socket has about 100 characters at most


@cache
def start_worker_server() -> subprocess.Popen[bytes]:
    """Start it for this process, with which it ends. To be called before Spark starts, whose Java process learns of it by the
    environment. A second call does nothing, because a later session has the same Java process."""
    place = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _PATH_MAX else "/tmp"
    folder = tempfile.mkdtemp(prefix="anabranch-workers-", dir=place)  # no other user may ask for workers
    address = os.environ[WORKER_SERVER] = str(Path(folder) / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(_BACKLOG)
        # It learns of the end of this process by its standard input, and then removes the folder.
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(listener.fileno()), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**_ENVIRONMENT, **os.environ},
            pass_fds=[listener.fileno()],
        )
