"""A real YARN cluster on loopback: a resource manager and its node managers, each a process. They come from Maven Central,
by the Ivy that Spark ships, once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import escape

import psutil

from anabranch.spark.session.cache import cache_folder
from anabranch.spark.session.jars import hadoop_version
from anabranch.spark.session.java import ensure_java
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

_SERVER = "org.apache.hadoop.yarn.server"
_RESOURCE_MANAGER = f"{_SERVER}.resourcemanager.ResourceManager"
_NODE_MANAGER = f"{_SERVER}.nodemanager.NodeManager"
_EXECUTOR = "YarnCoarseGrainedExecutorBackend"
_FETCH_S = 600


class YarnCluster:
    """A resource manager and node managers of 3 GB each. `conf` is the folder for HADOOP_CONF_DIR."""

    def __init__(self, folder: Path, *, nodes: int) -> None:
        self.folder = folder
        self.conf = folder / "conf"
        spec = find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        self.spark_jars = Path(spec.origin).parent / "jars"
        self._class_path = ":".join([*map(str, sorted(_jars().glob("*.jar"))), f"{self.spark_jars}/*"])
        self._ports = {name: free_port() for name in ("", "scheduler", "resource-tracker", "admin", "webapp")}
        self._write_conf(self.conf, {})
        self._processes = [self._start(_RESOURCE_MANAGER, self.conf, "resource-manager")]
        until(lambda: self._nodes() is not None)
        for number in range(nodes):
            self._start_node(f"node-{number}")
        until(lambda: len(self._nodes() or ()) == nodes)

    def executors(self) -> list[int]:
        """The processes of all executors."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            # A shell starts each, whose words hold those of the executor.
            if any(word.endswith(_EXECUTOR) for word in words) and any(str(self.folder) in word for word in words):
                found.append(process.pid)
        return found

    def applications(self, state: str) -> list[str]:
        """The ids of the applications in a state, such as RUNNING."""
        found = self._get("apps") or {}
        return [each["id"] for each in (found.get("apps") or {}).get("app", []) if each["state"] == state]

    def kill_node(self) -> None:
        """kill -9 to one node manager and to all that it started."""
        process = self._processes.pop()
        for child in psutil.Process(process.pid).children(recursive=True):
            _kill(child.pid)
        process.kill()
        process.wait(PATIENCE_S)

    def logs(self) -> str:
        """The ends of the logs."""
        return "\n".join(f"{log.name}: {log.read_text()[-2_000:]}" for log in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """End everything."""
        while self._processes:
            self.kill_node()

    def _start_node(self, name: str) -> None:
        conf = self.folder / f"conf-{name}"
        places = {
            f"yarn.nodemanager.{each}": "127.0.0.1:0" for each in ("address", "localizer.address", "webapp.address")
        }
        folders = {f"yarn.nodemanager.{each}-dirs": str(self.folder / name / each) for each in ("local", "log")}
        self._write_conf(conf, {**places, **folders})
        self._processes.append(self._start(_NODE_MANAGER, conf, name))

    def _write_conf(self, folder: Path, more: dict[str, str]) -> None:
        folder.mkdir()
        manager = {
            ".".join(filter(None, ("yarn.resourcemanager", name, "address"))): f"127.0.0.1:{port}"
            for name, port in self._ports.items()
        }
        settings = {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.resource.memory-mb": "3072",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
            "hadoop.tmp.dir": str(self.folder / "tmp"),
            "fs.defaultFS": "file:///",
        }
        _write(folder / "yarn-site.xml", {**settings, **manager, **more})
        _write(folder / "core-site.xml", settings)

    def _start(self, main: str, conf: Path, name: str) -> subprocess.Popen[bytes]:
        command = [str(ensure_java() / "bin" / "java"), "-Xmx256m", f"-Dyarn.log.dir={self.folder}"]
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                [*command, "-cp", f"{conf}:{self._class_path}", main],
                cwd=self.folder, env={**os.environ, "JAVA_HOME": str(ensure_java())}, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _nodes(self) -> list[str] | None:
        """The ids of the running nodes; None while the resource manager can't be reached."""
        found = self._get("nodes?states=RUNNING")
        return None if found is None else [each["id"] for each in (found["nodes"] or {}).get("node", [])]

    def _get(self, what: str) -> dict[str, dict[str, list[dict[str, str]]]] | None:
        url = f"http://127.0.0.1:{self._ports['webapp']}/ws/v1/cluster/{what}"
        asked = urllib.request.Request(url, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                return json.load(answer)  # type: ignore[no-any-return]
        except OSError:
            return None


def _jars() -> Path:
    """The folder of YARN's jars, fetched if they are missing. Spark has the rest of what they need."""
    hadoop = hadoop_version()
    assert hadoop is not None
    folder = cache_folder() / "tests-yarn" / hadoop
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _fetch(folder, "org.apache.hadoop", "hadoop-client-minicluster", hadoop, "-notransitive")
            _fetch(folder, "org.bouncycastle", "bcpkix-jdk18on", "1.82")
            (folder / "complete").touch()
    return folder


def _fetch(folder: Path, organisation: str, module: str, version: str, *options: str) -> None:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    (ivy,) = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    command = [
        str(ensure_java() / "bin" / "java"),
        "-jar",
        str(ivy),
        "-cache",
        str(folder / "ivy"),
        "-types",
        "jar",
        *options,
    ]
    command += ["-dependency", organisation, module, version, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    assert list(folder.glob(f"{module}-*.jar")), done.stdout[-2_000:] + done.stderr[-2_000:]


def _write(file: Path, settings: dict[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    file.write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
