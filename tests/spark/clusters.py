"""A real Spark cluster for tests: a standalone master and workers, each a process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from anabranch.spark.session.java import ensure_java
from tests import s3_server
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"


class Cluster:
    """A master and its workers on loopback. The master remembers its workers and applications when it is started again."""

    def __init__(self, folder: Path) -> None:
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        self.home = Path(spec.origin).parent
        self.folder = folder
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.conf = folder / "conf"
        self.conf.mkdir()
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.memory": "768m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.network.timeout": "120s",
            "spark.deploy.maxExecutorRetries": "-1",
        }
        (self.conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._started = 0

    @property
    def environment(self) -> dict[str, str]:
        """What daemons and drivers are started with."""
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.folder / 'recovery'}"
        return {
            **os.environ,
            "JAVA_HOME": str(ensure_java()),
            "SPARK_HOME": str(self.home),
            "SPARK_CONF_DIR": str(self.conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER": self.url,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{recovery} -Dspark.worker.timeout=30",
            "PYSPARK_PYTHON": sys.executable,
        }

    def _start(self, *words: str, without: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        self._started += 1
        environment = {name: value for name, value in self.environment.items() if name not in without}
        with open(self.folder / f"daemon-{self._started}.log", "wb") as log:
            return subprocess.Popen(
                [str(self.home / "bin" / "spark-class"), *words],
                cwd=self.folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def start_master(self) -> None:
        """Start it, and wait until it listens."""
        place = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        process = self.master = self._start(_MASTER, *place)

        def listens() -> bool:
            assert process.poll() is None, self.logs()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(listens)

    def start_worker(self, *, cores: int = 1, without: tuple[str, ...] = ()) -> None:
        """Start one, with 700 MB for each core; `without` names variables that it shall not have in its environment."""
        work = self.folder / f"work-{self._started}"
        place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--work-dir", str(work))
        self.workers.append(
            self._start(_WORKER, *place, "-c", str(cores), "-m", f"{700 * cores}m", self.url, without=without)
        )

    def executors(self) -> list[int]:
        """The processes of the executors of this cluster's workers."""
        mine = {worker.pid for worker in self.workers}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and EXECUTOR in (entry / "cmdline").read_text():
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    found += [int(entry.name)] if parent in mine else []
            except (OSError, ValueError):
                continue
        return found

    def kill_worker(self) -> None:
        """kill -9 to one; its executor ends by itself."""
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait(PATIENCE_S)

    def kill_master(self) -> None:
        """kill -9."""
        assert self.master is not None
        self.master.kill()
        self.master.wait(PATIENCE_S)
        self.master = None

    def stop_workers(self) -> None:
        """End all of them with their executors."""
        executors = self.executors()
        for worker in self.workers:
            worker.kill()
            worker.wait(PATIENCE_S)
        for pid in executors:
            kill(pid)
        self.workers.clear()

    def close(self) -> None:
        """End everything."""
        self.stop_workers()
        if self.master is not None:
            self.kill_master()

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        return "\n".join(f"{log.name}: {log.read_text()[-2_000:]}" for log in sorted(self.folder.glob("daemon-*.log")))


def kill(pid: int) -> None:
    """kill -9, to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster whose master runs. It has no workers yet; they know the credentials of the emulator of S3."""
    s3_server.ensure_credentials()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-spark-"))
    made = Cluster(folder)
    try:
        made.start_master()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
