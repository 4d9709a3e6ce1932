"""`anabranch serve --queries`: a broker that is a host of deployed queries too."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.kit import BrokerProcess
from tests.spark.pipelines import new_store, put
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

SQL = "CREATE STREAM out.copy WITH (key = device, time = at) AS SELECT device, at, celsius FROM STREAM iot.sensors"
PATIENCE_S = 400.0


def test_a_broker_runs_the_queries_that_it_is_sent_and_replaces_its_host(tmp_path: Path) -> None:
    def query() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{broker.http}/v1/queries/copy", timeout=60).json()
        return found

    def results() -> int:
        time.sleep(0.2)  # the host needs the processor too
        answer = httpx.get(f"{broker.http}/v1/queries/copy/results", timeout=60)
        return len(answer.json()["events"]) if answer.status_code == 200 else 0

    with new_store(tmp_path / "river") as store:
        put(store, range(5))
        options = ("--queries", "--set", "queries_spares=0")
        with BrokerProcess(tmp_path / "river", *options, folder=tmp_path) as broker:
            httpx.put(f"{broker.http}/v1/queries/copy", content=SQL, headers={"content-type": "application/sql"})
            until(lambda: results() == 5, seconds=PATIENCE_S)
            host = query()["host"]
            assert host == broker.addresses["queries"]

            os.kill(int(host.partition("@")[0]), signal.SIGKILL)
            put(store, range(5, 8))
            until(lambda: results() == 8 and query()["state"] == "running", seconds=PATIENCE_S)
            assert query()["host"] != host

            broker.signal()
            assert broker.wait() == 0
        info = store.queries.get("copy")
        assert (info.state, info.host, info.error) == ("waiting", None, None)
