"""Two brokers under torture, behind a bad network: nothing is violated."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture.brokers import BrokerRun
from torture.location import StoreLocation
from torture.store_kinds import place

pytestmark = [pytest.mark.process, pytest.mark.chaos]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5.0, 20.0])
def test_kills_and_a_bad_network_lose_and_double_nothing(tmp_path: Path, seconds: float, seed: int) -> None:
    there = StoreLocation(str(tmp_path / "river"))
    report = BrokerRun("brokers", there, tmp_path, seed).run(seconds, lambda report: None)
    assert report.violations == [], f"seed {seed}: {report}"
    assert report.counts["acknowledged events"] > 0
    assert sum(report.faults.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "s3"])
def test_on_servers_too(tmp_path: Path, kind: str, seed: int) -> None:
    with place(kind, tmp_path) as (there, _):
        report = BrokerRun(f"brokers-{kind}", there, tmp_path, seed).run(20.0, lambda report: None, failovers=4)
    assert report.violations == [], f"seed {seed}: {report}"
