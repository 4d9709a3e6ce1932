"""Deployed queries with executors as pods of a real Kubernetes API: an executor's process, its pod and the driver are killed
under load, and the results are those of an undisturbed run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.hosts import HostProcess, Load, by_duckdb, kill_driver
from tests.spark.kubernetes_cluster import NAMESPACE, KubernetesCluster, kubernetes_cluster
from tests.spark.pipelines import COUNTS, counted, new_store, put
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesCluster]:
    with kubernetes_cluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.config))
        yield cluster


def test_queries_go_on_exactly_when_executor_pod_and_driver_are_killed(
    kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    settings = {
        "spark.master": kubernetes.master,
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": "none",
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with new_store(tmp_path / "river") as store:
        put(store, range(200))
        store.queries.deploy("counts", COUNTS)
        host = HostProcess(store, tmp_path / "host.log", "--spares", "0", *options)
        load = None
        try:
            host.wait(lambda: store.streams.exists("out/counts") and sum(counted(store).values()) > 0)
            assert "Running" in kubernetes.phases().values()
            load = Load(store, begin=200)
            kills = (
                lambda: _kill_executor(kubernetes),
                lambda: _delete_pod(kubernetes),
                lambda: kill_driver(store, "counts"),
            )
            for kill in kills:
                before, started = sum(counted(store).values()), kubernetes.started
                kill()
                host.wait(lambda before=before: sum(counted(store).values()) > before + 20)  # type: ignore[misc]
                host.wait(lambda started=started: kubernetes.started > started)  # type: ignore[misc]
            written = load.end()
            load = None
            wanted = by_duckdb(store, until_s=written - 6)
            host.wait(lambda: sum(counted(store).values()) >= sum(wanted.values()))
            assert counted(store) == wanted
            kept = kubernetes.config_maps()
            running = set(kubernetes.executors())
            assert host.stop() == 0
            until(lambda: not kubernetes.executors())
            # Only the driver that was killed leaves something there.
            assert not running & set(kubernetes.phases())
            assert len(kubernetes.config_maps()) == len(kept) - 1 == 1
        except AssertionError:
            print(kubernetes.logs())
            raise
        finally:
            if load is not None:
                load.end()
            host.end()


def _kill_executor(kubernetes: KubernetesCluster) -> None:
    (name, pid), *_ = kubernetes.executors().items()
    os.kill(pid, signal.SIGKILL)
    # Spark removes the pod's object once it has seen it as failed.
    until(lambda: kubernetes.phases().get(name) in (None, "Failed"))


def _delete_pod(kubernetes: KubernetesCluster) -> None:
    name, *_ = kubernetes.executors()
    kubernetes.delete_pod(name)
    until(lambda: name not in kubernetes.phases())
