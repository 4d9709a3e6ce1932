"""A while of torture on every place: nothing is violated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torture.conductor import Report, Run
from torture.place import Place
from torture.postgres import PostgresServer

_SECONDS = 45.0


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path, name: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    server = PostgresServer(tmp_path) if name == "postgres" else None
    place = Place(str(tmp_path / "river")) if server is None else Place(server.url, str(tmp_path / "blobs"))
    try:
        report = Run(name, place, tmp_path, seed, server).run(_SECONDS, _silent)
    finally:
        if server is not None:
            server.close()
    assert report.violations == [], f"seed {seed}: {report}"
    assert report.counts["acknowledged events"] > 1_000
    assert sum(report.faults.values()) > 20


def _silent(report: Report) -> None:
    pass
