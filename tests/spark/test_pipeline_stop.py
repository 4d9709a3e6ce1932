"""A pipeline of the shell that gets signals, and failures of Spark as one line without Java's stack traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.spark.pipelines import admin as pipeline_admin
from tests.spark.pipelines import SOURCE, new_store, put, rows
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.spark, pytest.mark.process]

# Each micro-batch waits for the file `go` once it has told that it runs, so a test decides when a batch ends.
_SLOW = """
import os, sys, time
from pathlib import Path
from anabranch.spark import sink
from anabranch.spark.options import WriteOptions
from anabranch.spark.pipelines import source_views, start
from anabranch.spark.pipelines.session import session_with_log_file
from pyspark_anabranch import DefaultSource

folder = Path(os.environ["SLOW_FOLDER"])

class Writer(sink.StreamWriter):
    def commit(self, messages, batchId):
        (folder / f"began-{batchId}").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        super().commit(messages, batchId)

class Slow(DefaultSource):
    @classmethod
    def name(cls):
        return "slow"
    def streamWriter(self, schema, overwrite):
        return Writer(WriteOptions.of(self.options), schema, overwrite)

source_views.FORMAT = start.FORMAT = "slow"
spark = session_with_log_file(folder / "log", name="slow")
spark.dataSource.register(Slow)
import anabranch.cli.main
sys.argv = ["anabranch", "pipeline", "run", *sys.argv[1:]]
anabranch.cli.main.main()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def start(store: ab.Store, sql: str, *options: str, program: str | None = None) -> subprocess.Popen[str]:
    folder = Path(store.url).parent
    (folder / "p.sql").write_text(sql)
    entry = ["-m", "anabranch.cli.main", "pipeline", "run"] if program is None else ["-c", program]
    environment = {
        **os.environ,
        "ANABRANCH_STORE": store.url,
        "SLOW_FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    pipe = subprocess.PIPE
    command = [sys.executable, *entry, str(folder / "p.sql"), *options]
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def ended(child: subprocess.Popen[str]) -> str:
    """Its stderr, once it has ended."""
    try:
        return child.communicate(timeout=PATIENCE_S)[1]
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)


COPY = "CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"


@pytest.mark.slow
@pytest.mark.parametrize(
    "second", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one signal", "two signals"]
)
def test_sigterm_lets_the_micro_batch_finish_and_a_second_one_does_not(store: ab.Store, second: bool) -> None:
    put(store, range(30))
    folder = Path(store.url).parent
    child = start(store, COPY, "--quiet", program=_SLOW)
    until(lambda: (folder / "began-0").exists() or child.poll() is not None, 240)
    child.send_signal(signal.SIGTERM)
    line = child.stderr.readline() if child.stderr is not None else ""
    while "stopping after" not in line and line:
        line = child.stderr.readline() if child.stderr is not None else ""
    assert line == "anabranch: stopping after the micro-batch in progress; a second signal ends it at once\n"
    if second:
        child.send_signal(signal.SIGTERM)
    else:
        (folder / "go").touch()
    errors = ended(child)
    assert child.returncode == (143 if second else 0), errors
    assert errors == ""
    assert len(rows(store, "out/copy")) == (0 if second else 30)
    state = pipeline_admin.find(store, "p").state_at(store.runtime.clock.now())
    assert state == ("lost" if second else "stopped")

    (folder / "go").touch()
    put(store, range(30, 40))
    again = start(store, COPY, "--quiet", "--once")
    errors = ended(again)
    assert again.returncode == 0, errors
    assert sorted(row["at"] for row in rows(store, "out/copy")) == sorted(row["at"] for row in rows(store, SOURCE))


def failing(what: str) -> str:
    """A program whose sink fails on its own in every batch."""
    return _SLOW.replace(
        """    def commit(self, messages, batchId):
        (folder / f"began-{batchId}").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        super().commit(messages, batchId)
""",
        f"""    def write(self, iterator):
        {what}
""",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "import errno; raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))",
            "out/copy: the disk is full where Spark",
        ),
        ("os.kill(os.getpid(), 9)", "out/copy: a Python worker of Spark was killed"),
    ],
    ids=["disk full", "worker killed"],
)
def test_a_failure_of_spark_is_one_line_and_its_trace_only_with_debug(store: ab.Store, what: str, said: str) -> None:
    put(store, range(30))
    child = start(store, COPY, "--quiet", "--once", program=failing(what))
    (line,) = ended(child).splitlines()
    assert child.returncode == 2
    assert line.startswith("anabranch: pipeline 'p' failed") and said in line
    assert line.endswith("run it again, and it continues where it stopped")
    error = pipeline_admin.find(store, "p").error
    assert error is not None and said in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE STREAM out.x AS SELEC 1 FROM STREAM iot.sensors", "line 1: "),
        ("CREATE STREAM out.x AS SELECT at,\ndevise FROM STREAM iot.sensors", "line 2: "),
        ("CREATE STREAM out.x AS SELECT * FROM STREAM iot.sensors JOIN iot.nothing USING (device)", "`iot`.`nothing`"),
        ("CREATE STREAM out.x AS SELECT * FROM STREAM iot.nothing", "stream 'iot/nothing' not found"),
    ],
)
def test_a_mistake_in_the_sql_is_one_line_of_the_shell(store: ab.Store, sql: str, said: str) -> None:
    child = start(store, sql)
    (line,) = ended(child).splitlines()
    assert child.returncode == 2
    assert line.startswith("anabranch: ") and said in line


_NO_JAVA = """
import sys
from anabranch.spark.session import java
java._candidates = lambda: []
from anabranch.cli.main import main
sys.argv = ["anabranch", "pipeline", "run", *sys.argv[1:]]
main()
"""


def test_a_machine_without_java_is_told_what_to_install(store: ab.Store) -> None:
    child = start(store, COPY, program=_NO_JAVA)
    (line,) = ended(child).splitlines()
    assert child.returncode == 2
    assert "Spark on a machine without Java 17 or newer" in line and "anabranch[spark]" in line
