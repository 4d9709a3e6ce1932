"""The server from which a session's Python processes are forked: what it runs is what a new Python would run."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from anabranch.spark.session import worker_request
from anabranch.spark.session.home import WORKER_SERVER

pytestmark = pytest.mark.process

_PATIENCE_S = 60.0
_PROGRAM = """
import os, sys
from anabranch.spark.session.home import WORKER_SERVER, ensure_home
from anabranch.spark.session.home import start_worker_server
ensure_home()
server = start_worker_server()
assert start_worker_server() is server
print(os.environ["PYSPARK_PYTHON"], os.environ[WORKER_SERVER], server.pid, flush=True)
sys.stdin.read()
"""
_MODULE = """
import json, os, sys
variables = {name: os.environ.get(name) for name in ("SECRET", "PYTHONHASHSEED", "HOME")}
print(json.dumps([sys.argv[1:], os.getcwd(), variables, os.getppid(), __name__, sys.stdin.read(), hash("a")]))
print("an error", file=sys.stderr)
sys.exit(3)
"""


class Program:
    """A program with such a server, as one with a Spark session is."""

    def __init__(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        self.command, self.address, server = self._process.stdout.readline().split()
        self.server = int(server)

    def request(self, *command: str) -> list[str]:
        """What the command for Python runs, if Spark starts it with the words after the first one."""
        return [sys.executable, "-I", "-S", worker_request.__file__, self.address, sys.executable, *command]

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it, by default as a crash would."""
        self._process.send_signal(number)
        self._process.wait(_PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def program() -> Iterator[Program]:
    started = Program()
    yield started
    started.end()


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of a request, with a module that tells what it was given."""
    (tmp_path / "told.py").write_text(_MODULE)
    return {"PYTHONPATH": str(tmp_path), "SECRET": "a = b\nc", "PATH": os.environ["PATH"]}


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_fork_has_the_arguments_streams_variables_and_folder_of_its_request(
    program: Program, variables: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        program.request("-m", "told", "--all", "two words", ""),
        env=variables,
        cwd=tmp_path,
        input="an input",
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    *told, _ = json.loads(done.stdout)
    no_home = {"SECRET": "a = b\nc", "PYTHONHASHSEED": None, "HOME": None}
    assert told == [["--all", "two words", ""], str(tmp_path), no_home, program.server, "__main__", "an input"]
    assert done.stderr == "an error\n"


@pytest.mark.slow
def test_the_hashes_of_texts_are_the_same_in_each_session(variables: dict[str, str]) -> None:
    found = set()
    for _ in range(2):
        program = Program()
        done = subprocess.run(program.request("-m", "told"), env=variables, input="", capture_output=True, text=True)
        found.add(json.loads(done.stdout)[-1])
        program.end()
    assert len(found) == 1


def test_the_process_that_asked_stays_until_the_fork_has_ended(program: Program) -> None:
    environment = {**os.environ, WORKER_SERVER: program.address}
    daemon = subprocess.Popen(
        [program.command, "-m", "pyspark.daemon", "pyspark.worker"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert daemon.stdin is not None and daemon.stdout is not None
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    assert port > 0
    (fork,) = psutil.Process(program.server).children()
    assert fork.name() == "worker"
    assert daemon.poll() is None
    daemon.stdin.close()  # as Spark ends it
    assert daemon.wait(_PATIENCE_S) == 0
    wait_until(lambda: not fork.is_running())
    daemon.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_and_its_folder_go_with_the_program(number: signal.Signals) -> None:
    program = Program()
    folder = Path(program.address).parent
    assert folder.stat().st_mode & 0o077 == 0
    program.end(number)
    wait_until(lambda: not folder.exists() and not psutil.pid_exists(program.server))


def test_without_a_server_a_new_python_runs_it(program: Program, variables: dict[str, str]) -> None:
    os.kill(program.server, signal.SIGKILL)
    wait_until(lambda: psutil.Process(program.server).status() == psutil.STATUS_ZOMBIE)
    done = subprocess.run(
        program.request("-m", "told", "x"),
        env=variables,
        input="y",
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    told = json.loads(done.stdout)
    assert (told[0], told[3], told[5], done.returncode) == (["x"], os.getpid(), "y", 3)


def test_a_request_that_ends_or_is_nonsense_is_no_end_of_the_server(
    program: Program, variables: dict[str, str]
) -> None:
    import socket

    for sent in (b"", b"\0", b"\0nonsense"):
        with socket.socket(socket.AF_UNIX) as connection:
            wait_until(lambda: Path(program.address).exists())
            connection.connect(program.address)
            connection.sendall(sent)
    done = subprocess.run(
        program.request("-m", "told"), env=variables, input="", capture_output=True, text=True, timeout=_PATIENCE_S
    )
    assert json.loads(done.stdout)[3] == program.server


@pytest.mark.parametrize(
    ("module", "name"),
    [("python_streaming_source_runner", "source_runner"), ("python_streaming_sink_runner", "sink_runner")],
)
def test_a_fork_is_named_after_its_task(
    module: str, name: str, program: Program, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text('print(open("/proc/self/comm").read())')
    done = subprocess.run(
        program.request("-m", module), env=variables, capture_output=True, text=True, timeout=_PATIENCE_S
    )
    assert done.stdout.strip() == name
