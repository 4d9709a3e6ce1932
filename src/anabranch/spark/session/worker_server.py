"""A process from which all Python processes of a local Spark session are forked: the daemons of its tasks, plans and commits, and
the process that each streaming source has.

Spark starts each of these as a new Python, which imports pyarrow, pandas and pyspark again: 0.7 to 2 s of processor time, and 70
to 110 MB of memory that it shares with nobody. A driver of ten queries has about 15 of them. Forked from one process that
has imported everything, they share its memory and start in milliseconds.

The command for Python in our SPARK_HOME (`anabranch.spark.session.home`) sends what Spark starts here, by way of
`anabranch.spark.session.worker_request`.
"""

from __future__ import annotations

import os
import runpy
import select
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from anabranch.spark.session.daemon import preload

__all__ = ["WORKER_MODULES", "main"]

WORKER_MODULES: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
)
_REQUEST_MAX_S: Final = 5.0  # a client writes its request at once


def main(descriptor: int, folder: str) -> None:
    """Serve requests at this socket, which is in this folder, until the standard input ends; then remove the folder."""
    with socket.socket(fileno=descriptor) as listener:
        preload(*WORKER_MODULES)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends its session
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
        ended = False
        while not ended:
            ready, _, _ = select.select([sys.stdin.fileno(), listener.fileno()], [], [])
            if listener.fileno() in ready:
                _serve(listener)
            else:
                ended = not os.read(sys.stdin.fileno(), 1)
    shutil.rmtree(folder, ignore_errors=True)


def _serve(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, suppress(OSError, ValueError):  # a client that ends meanwhile is no reason to end
        connection.settimeout(_REQUEST_MAX_S)
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        try:
            count, folder, *texts = _received(connection).split("\0")
            command, environment = texts[: int(count)], dict(each.split("=", 1) for each in texts[int(count) :])
            if os.fork() == 0:
                listener.close()
                _become(connection, streams, command, environment, folder)
        finally:
            for stream in streams:
                os.close(stream)


def _received(connection: socket.socket) -> str:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return os.fsdecode(b"".join(parts))


def _become(
    connection: socket.socket, streams: list[int], command: list[str], environment: Mapping[str, str], folder: str
) -> NoReturn:
    """Be what `python -m MODULE …` would be in this environment and folder."""
    code = 1
    try:
        for ours, theirs in enumerate(streams):
            os.dup2(theirs, ours)
            os.close(theirs)
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.default_int_handler)
        os.register_at_fork(after_in_child=connection.close)  # a daemon has ended even if workers of it go on
        connection.sendall(b"\0")
        _, _, module, *arguments = command
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        known = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in known if path and path not in sys.path]
        sys.argv = [module, *arguments]
        _name(sys.argv[-1])
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # what this process registered for its end is the server's


def _name(module: str) -> None:
    """Call this process by its task in lists of processes, where the system can."""
    # The system keeps 15 letters, within which the runners of sources and sinks would have one name.
    name = module.rpartition(".")[2].removeprefix("python_streaming_")
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
