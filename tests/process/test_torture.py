"""A while of torture on every place: nothing is violated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torture.conductor import Report, Run
from torture.places import NAMES, place

_SECONDS = 40.0


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.parametrize("name", NAMES)
def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path, name: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with place(name, tmp_path) as (there, servers):
        report = Run(name, there, tmp_path, seed, servers).run(_SECONDS, _silent)
    assert report.violations == [], f"seed {seed}: {report}"
    assert report.counts["acknowledged events"] > 100
    assert sum(report.faults.values()) > 20


def _silent(report: Report) -> None:
    pass
