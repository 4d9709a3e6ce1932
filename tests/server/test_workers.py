"""Several HTTP workers on one socket: they are replaced, their counts are summed, and none outlives the broker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.kit import Line
from tests.server.kit import BrokerProcess
from tests.server.workers_of import children
from tests.waiting import until, until_gone

pytestmark = pytest.mark.process


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "river", "--workers", "2", "--set", "grpc=false", folder=tmp_path) as process:
        yield process


def healthy(broker: BrokerProcess) -> bool:
    try:
        return httpx.get(f"{broker.http}/healthz").is_success
    except httpx.TransportError:  # the connection was in the worker that was killed
        return False


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_counts_are_summed(broker: BrokerProcess) -> None:
    first = children(broker.process.pid)
    for _ in range(20):
        assert healthy(broker)
    os.kill(first[0], signal.SIGKILL)
    until(lambda: len(set(children(broker.process.pid)) - set(first)) == 1)
    until(lambda: healthy(broker))
    text = httpx.get(f"{broker.http}/metrics").text
    assert "anabranch_broker_restarts_total 1" in text
    (line,) = [
        line
        for line in text.splitlines()
        if line.startswith('anabranch_broker_calls_total{front_end="http",outcome="ok"')
    ]
    assert int(line.rpartition(" ")[2]) >= 20, "what a worker counted that was killed stays"
    assert broker.end() == 0


@pytest.mark.slow
def test_workers_end_with_the_broker_even_when_it_is_killed(broker: BrokerProcess) -> None:
    workers = children(broker.process.pid)
    assert len(workers) == 2
    broker.process.kill()
    for worker in workers:
        until_gone(worker)


def test_a_worker_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    told = Line(tmp_path / "river").process("serve", "--http-port", "0", "--workers", "2", "--set", "store=memory://")
    assert told.code == 2 and "a store in memory belongs to one process" in told.err
