"""The stand-in for Kubernetes' kubelet, which the tests on Kubernetes trust: it runs pods, and tells the API what became of
them, as a kubelet does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kubernetes_cluster import NAMESPACE, KubernetesCluster, kubernetes_cluster
from tests.waiting import until, until_gone

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(3600)]  # it may build the server

_OBJECTS = f"/api/v1/namespaces/{NAMESPACE}"
_JAVA = '#!/bin/sh\necho "$@"\nenv\ncase $END in "") exec sleep 1000 ;; *) exit $END ;; esac\n'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubernetesCluster]:
    """Its Java prints what it was started with, and ends with the code in END, or when killed."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_JAVA)
    java.chmod(0o755)
    with kubernetes_cluster(java=tmp_path) as started:
        yield started


def test_a_pod_runs_as_a_process_whose_end_is_told_and_which_ends_with_the_pod(cluster: KubernetesCluster) -> None:
    cluster.api.call("POST", f"{_OBJECTS}/secrets", {"metadata": {"name": "s3"}, "stringData": {"key": "of S3"}})
    _create(cluster, "killed")
    _create(cluster, "deleted")
    _create(cluster, "well", END="0")
    _create(cluster, "badly", END="3")
    wanted = {"killed": "Running", "deleted": "Running", "well": "Succeeded", "badly": "Failed"}
    until(lambda: cluster.phases() == wanted)
    assert sorted(cluster.executors()) == ["deleted", "killed"]
    assert _code(cluster, "badly") == 3
    told = (cluster.folder / "deleted" / "log").read_text().splitlines()
    assert told[0].startswith("-Dfirst -Dsecond -Xms8m -Xmx8m -cp ")
    assert "--hostname 127.0.0.1 --resourceProfileId 0 --podName deleted" in told[0]
    assert {"KEY=of S3", "SPARK_EXECUTOR_POD_NAME=deleted"} <= set(told)
    assert not any(line.startswith("PYTEST") for line in told)

    os.kill(cluster.executors()["killed"], signal.SIGKILL)
    until(lambda: cluster.phases()["killed"] == "Failed")
    assert _code(cluster, "killed") == 128 + signal.SIGKILL
    pid = cluster.executors()["deleted"]
    cluster.delete_pod("deleted")
    until(lambda: "deleted" not in cluster.phases())
    until_gone(pid)
    assert not cluster.executors()
    assert not (cluster.folder / "kubelet.log").exists()


def _create(cluster: KubernetesCluster, name: str, **more: str) -> None:
    """A pod such as Spark makes for an executor."""
    values = {
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "8m",
        "SPARK_APPLICATION_ID": "application",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_JAVA_OPT_10": "-Dsecond",
        "SPARK_JAVA_OPT_9": "-Dfirst",
        **more,
    }
    references = {
        "SPARK_EXECUTOR_POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "SPARK_EXECUTOR_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "KEY": {"secretKeyRef": {"name": "s3", "key": "key"}},
    }
    environment: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in values.items()]
    environment += [{"name": key, "valueFrom": reference} for key, reference in references.items()]
    container = {
        "name": "spark",
        "image": "none",
        "args": ["executor"],
        "env": environment,
        "volumeMounts": [{"name": "conf", "mountPath": "/opt/spark/conf"}],
    }
    spec = {"restartPolicy": "Never", "volumes": [{"name": "conf", "emptyDir": {}}], "containers": [container]}
    cluster.api.call("POST", f"{_OBJECTS}/pods", {"metadata": {"name": name}, "spec": spec})


def _code(cluster: KubernetesCluster, name: str) -> int:
    (status,) = cluster.api.call("GET", f"{_OBJECTS}/pods/{name}")["status"]["containerStatuses"]
    code: int = status["state"]["terminated"]["exitCode"]
    return code
