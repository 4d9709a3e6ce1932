"""A stand-in for Kubernetes' scheduler and kubelet: it binds each pod to a node and runs it as a process of this machine.

It does with the API what those do: binds, reports Running, Succeeded or Failed with the exit code, and ends a deleted pod
before the pod's object goes. It runs what the entrypoint of Spark's image runs for an executor, in an environment that has
only the pod's variables and those of an image. Images, networks, volumes' contents, probes and limits are not its matter.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import psutil

from tests.waiting import PATIENCE_S

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ADDRESS: Final = "127.0.0.1"
_AGAIN_S: Final = 0.2  # until the pods are watched again, after an error
_KEEP_WATCH_S: Final = 60

Json = dict[str, Any]


class Api:
    """The API of Kubernetes, by plain HTTPS."""

    def __init__(self, url: str, *, token: str, ca: Path) -> None:
        self.url = url
        self._token = token
        self.ca = ca

    def call(self, method: str, path: str, body: Json | str | None = None) -> Json:
        """The answer. A text is YAML. Raises HTTPError, with the server's reason as a note."""
        try:
            with self._open(method, path, body, PATIENCE_S) as answer:
                found: Json = json.load(answer)
                return found
        except HTTPError as exc:
            exc.add_note(exc.read().decode(errors="replace")[:1_000])
            raise

    def watch(self, path: str) -> Iterator[Json]:
        """What is there and then each change, until the server ends it."""
        with self._open("GET", f"{path}?watch=true&timeoutSeconds={_KEEP_WATCH_S}", None, PATIENCE_S) as answer:
            for line in answer:
                yield json.loads(line)

    def _open(self, method: str, path: str, body: Json | str | None, seconds: float) -> Any:
        kind = "application/yaml" if isinstance(body, str) else "application/json"
        if method == "PATCH":
            kind = "application/merge-patch+json"
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        request = urllib.request.Request(
            self.url + path,
            data=None if data is None else data.encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json"},
            method=method,
        )
        return urllib.request.urlopen(request, timeout=seconds, context=ssl.create_default_context(cafile=self.ca))


class Kubelet:
    """Runs the pods of all namespaces. `image` is the environment that the image of Spark would have."""

    def __init__(self, api: Api, folder: Path, *, image: dict[str, str]) -> None:
        self._api = api
        self._folder = folder
        self._image = image
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._known: set[str] = set()  # by their ids, as those that ended
        self._ended: set[str] = set()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watcher = threading.Thread(target=self._watch, name="kubelet")
        self._watcher.start()

    @property
    def started(self) -> int:
        """How many pods it has seen."""
        return len(self._known)

    def running(self) -> dict[str, int]:
        """The process of each pod that runs, by the pod's name, the oldest first."""
        with self._guard:
            return {name: process.pid for name, process in self._running.items()}

    def close(self) -> None:
        """Kill everything. The server is to be ended afterwards, which ends the last thread of this."""
        self._closing.set()
        with self._guard:
            processes = list(self._running.values())
        for process in processes:
            _kill(process)

    def _watch(self) -> None:
        while not self._closing.is_set():
            try:
                for event in self._api.watch("/api/v1/pods"):
                    self._take(event["type"], event["object"])
            except Exception:
                self._report()
                self._closing.wait(_AGAIN_S)

    def _take(self, change: str, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if self._closing.is_set() or change == "ERROR":
            return
        if change == "DELETED" or "deletionTimestamp" in pod["metadata"]:
            threading.Thread(target=self._end, args=(pod,), name=f"end-{name}").start()
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "node"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self._api.call("POST", f"{_path(pod)}/binding", binding)
        elif uid not in self._known:
            self._known.add(uid)
            threading.Thread(target=self._run, args=(pod,), name=f"run-{name}").start()

    def _run(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        folder = self._folder / name
        folder.mkdir()
        try:
            (container,) = pod["spec"]["containers"]
            assert container["args"] == ["executor"], container["args"]
            environment = self._environment(pod, container, folder)
            began = _now()
            with open(folder / "log", "wb") as log, self._guard:
                if self._closing.is_set() or pod["metadata"]["uid"] in self._ended:
                    return
                process = subprocess.Popen(
                    _command(environment), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                self._running[name] = process
            self._tell(pod, "Running", {"running": {"startedAt": began}})
            code = process.wait()
            with self._guard:
                del self._running[name]
            # As the kubelet counts: a signal's number behind 128.
            ended = {"exitCode": code if code >= 0 else 128 - code, "startedAt": began, "finishedAt": _now()}
            self._tell(pod, "Succeeded" if code == 0 else "Failed", {"terminated": ended})
        except Exception:
            self._report()

    def _end(self, pod: Json) -> None:
        """SIGTERM, and SIGKILL once the time of grace is over; then the pod's object goes."""
        try:
            with self._guard:
                self._ended.add(pod["metadata"]["uid"])
                process = self._running.get(pod["metadata"]["name"])
            if process is not None:
                process.terminate()
                try:
                    process.wait(pod["metadata"].get("deletionGracePeriodSeconds", 0))
                except subprocess.TimeoutExpired:
                    _kill(process)
            gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            with _no_longer_there():
                self._api.call("DELETE", _path(pod), gone)
        except Exception:
            self._report()

    def _tell(self, pod: Json, phase: str, state: Json) -> None:
        if self._closing.is_set():
            return
        (container,) = pod["spec"]["containers"]
        status = {
            "phase": phase,
            "hostIP": _ADDRESS,
            "podIP": _ADDRESS,
            "podIPs": [{"ip": _ADDRESS}],
            "startTime": _now(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        with _no_longer_there():
            self._api.call("PATCH", f"{_path(pod)}/status", {"status": status})

    def _environment(self, pod: Json, container: Json, folder: Path) -> dict[str, str]:
        """The pod's variables over those of the image, with the paths of its volumes in the pod's folder."""
        found = dict(self._image)
        fields = {"status.podIP": _ADDRESS, "metadata.name": pod["metadata"]["name"]}
        for each in container["env"]:
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                wanted = source["secretKeyRef"]
                namespace = pod["metadata"]["namespace"]
                secret = self._api.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{wanted['name']}")
                found[each["name"]] = base64.b64decode(secret["data"][wanted["key"]]).decode()
            else:
                found[each["name"]] = each.get("value", "")
        for mount in container.get("volumeMounts", ()):
            place = folder / "volumes" / mount["mountPath"].strip("/")
            place.mkdir(parents=True)
            for name, value in found.items():
                if value == mount["mountPath"]:
                    found[name] = str(place)
        return found

    def _report(self) -> None:
        if not self._closing.is_set():
            with open(self._folder / "kubelet.log", "a") as log:
                log.write(traceback.format_exc())


@contextmanager
def _no_longer_there() -> Iterator[None]:
    """Passes over the server's answer that the pod is gone, or is another of that name."""
    try:
        yield
    except HTTPError as exc:
        if exc.code not in (404, 409):
            raise


def _command(environment: dict[str, str]) -> list[str]:
    """What the entrypoint of Spark's image runs when told `executor`."""
    options = [name for name in environment if name.startswith("SPARK_JAVA_OPT_")]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    class_path = [
        environment["SPARK_CONF_DIR"],
        environment.get("SPARK_CLASSPATH", ""),
        f"{environment['SPARK_HOME']}/jars/*",
    ]
    return [
        f"{environment['JAVA_HOME']}/bin/java",
        *(environment[name] for name in sorted(options, key=lambda name: int(name.rpartition("_")[2]))),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, class_path)),
        _BACKEND,
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    ]


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, as a container ends."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
