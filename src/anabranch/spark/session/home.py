"""Provides a SPARK_HOME, and a command for Python, that make Spark's Python workers start faster.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on its workers' import path. Python compiles modules from a zip
again in every process: 0.6 s of processor time, and a streaming query needs about ten processes before its first
result. The installed package is the same code, compiled once. So workers get a SPARK_HOME without that zip.

Spark runs `python -m pyspark.daemon KIND` for each kind of worker that plans reads or commits batches, whatever
`spark.python.daemon.module` says: the setting applies to tasks alone. Such a daemon imports nothing before it forks,
and Spark ends what it forked after a minute without work. So a query that starts in a session which ran none for a
minute took 21 s of processor time to its first result, and now takes 8 s. The command runs the daemon of
`anabranch.spark.session.daemon` instead, and has all processes forked by the session's server
(`anabranch.spark.session.worker_server`) if there is one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from anabranch.spark.session.cache import cache_folder

__all__ = ["WORKER_SERVER", "ensure_home", "homes", "leave_home", "runs_our_command", "start_worker_server"]


WORKER_SERVER: Final = "ANABRANCH_WORKER_SERVER"
"""The variable of the environment that names the socket from which workers are forked (`anabranch.spark.session.worker_server`)."""

_COMMAND: Final = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m anabranch.spark.session.daemon "$@"
fi
case "${{{server}:+$1 $2}}" in
  "-m pyspark."* | "-m anabranch."*) exec {python} -I -S {request} "${server}" {python} "$@" ;;
esac
exec {python} "$@"
"""
# The folders that Spark's launcher and the JVM look for: all of a pip-installed pyspark except its Python code.
_PARTS: Final = ("bin", "data", "jars", "licenses", "sbin")

_MODULE: Final = "anabranch.spark.session.worker_server"
# As Spark sets them for its workers. Numpy's library would otherwise start threads, and hashes of texts would differ between
# the workers of two sessions.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
_BACKLOG: Final = 128  # requests that wait while the server imports
_PATH_MAX: Final = 60  # of the folder for temporary files: the path of a Unix socket has about 100 characters at most


def ensure_home() -> Path | None:
    """Set the environment's SPARK_HOME to a folder of links to the installed pyspark, kept in the user's cache folder.
    Returns the folder.

    Does nothing and returns None if SPARK_HOME is already set, if workers run another Python than this one, or if such
    a folder can't be created. Spark then works as usual.
    """
    if os.environ.get("SPARK_HOME") or not _runs_this_python(os.environ.get("PYSPARK_PYTHON", sys.executable)):
        return None
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not (installed / "python" / "lib" / "pyspark.zip").exists():
        return None
    try:
        home = _linked(installed)
    except (OSError, RuntimeError):  # no cache folder, or a file system without links
        return None
    os.environ["SPARK_HOME"] = str(home)
    with suppress(OSError):
        os.environ["PYSPARK_PYTHON"] = str(_command(home))
    return home


def leave_home() -> None:
    """Undo `ensure_home` in the environment, also that of a parent process: for a session of a cluster, whose other machines
    have no such folder, and of YARN, which is sent the zip."""
    try:
        ours = homes()
    except RuntimeError:
        return
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        if Path(os.environ.get(name, "")).is_relative_to(ours):
            del os.environ[name]


def runs_our_command() -> bool:
    """True if Spark's workers run the command for Python of such a folder."""
    try:
        return Path(os.environ.get("PYSPARK_PYTHON", "")).is_relative_to(homes())
    except RuntimeError:
        return False


def homes() -> Path:
    """The folder of all such folders. Raises RuntimeError without a home folder of the user."""
    return cache_folder() / "spark"


def _runs_this_python(command: str) -> bool:
    return command == sys.executable or Path(command) == _command_file(Path(command).parent)


def _linked(installed: Path) -> Path:
    home = homes() / hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        if (installed / part).exists():
            _link(home / part, installed / part)
    return home


def _command(home: Path) -> Path:
    """A file that runs this Python, with another daemon where Spark asks for its own."""
    python, request = shlex.quote(sys.executable), shlex.quote(str(Path(__file__).with_name("worker_request.py")))
    command, text = _command_file(home), _COMMAND.format(python=python, request=request, server=WORKER_SERVER)
    if not command.exists() or command.read_text() != text:
        fresh = command.with_name(f".{command.name}-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(command)
    return command


def _command_file(home: Path) -> Path:
    return home / f"python-{hashlib.sha256(sys.executable.encode()).hexdigest()[:16]}"


def _link(link: Path, target: Path) -> None:
    """Atomically point `link` at `target`; safe if other processes do the same."""
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


@cache
def start_worker_server() -> subprocess.Popen[bytes]:
    """Start the worker server of this process; it ends with the process. To be called before Spark starts, because
    Spark's Java process gets the server's address from the environment. A second call does nothing, because a later
    session has the same Java process."""
    place = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _PATH_MAX else "/tmp"
    folder = tempfile.mkdtemp(prefix="anabranch-workers-", dir=place)  # no other user may ask for workers
    address = os.environ[WORKER_SERVER] = str(Path(folder) / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(_BACKLOG)
        # The server's standard input ends with this process; the server then removes the folder and ends.
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(listener.fileno()), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**_ENVIRONMENT, **os.environ},
            pass_fds=[listener.fileno()],
        )
