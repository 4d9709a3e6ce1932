"""Deployed queries on a real YARN cluster: an executor, a node and the driver are killed under load, and the results are
those of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.hosts import HostProcess, by_duckdb, kill_driver
from tests.spark.pipelines import COUNTS, counted, new_store, put
from tests.spark.test_query_hosts import Load
from tests.spark.yarn_cluster import YarnCluster

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnCluster]:
    folder = Path(tempfile.mkdtemp(prefix="anabranch-yarn-"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder / "conf"))
    cluster = YarnCluster(folder, nodes=2)
    yield cluster
    cluster.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_queries_go_on_exactly_when_executor_node_and_driver_are_killed(yarn: YarnCluster, tmp_path: Path) -> None:
    settings = {
        "spark.master": "yarn",
        "spark.yarn.jars": f"local:{yarn.spark_jars}/*",
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m",
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
            assert len(yarn.applications("RUNNING")) == 1
            load = Load(store, begin=200)
            for kill in (lambda: _kill_executor(yarn), yarn.kill_node, lambda: kill_driver(store, "counts")):
                before = sum(counted(store).values())
                kill()
                host.wait(lambda before=before: sum(counted(store).values()) > before + 20)  # type: ignore[misc]
            written = load.end()
            load = None
            wanted = by_duckdb(store, until_s=written - 6)
            host.wait(lambda: sum(counted(store).values()) >= sum(wanted.values()))
            assert counted(store) == wanted
        except AssertionError:
            print(yarn.logs())
            raise
        finally:
            if load is not None:
                load.end()
            host.end()


def _kill_executor(yarn: YarnCluster) -> None:
    os.kill(yarn.executors()[0], signal.SIGKILL)
