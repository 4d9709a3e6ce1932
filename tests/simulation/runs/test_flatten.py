"""Short spans are put together while everything else goes on, and fails: no event moves, is lost or comes twice."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import limits
from anabranch.log.upkeep import compact
from anabranch.log.upkeep.flatten import FlattenReport, flatten
from tests.simulation.clients import ALGEBRA
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim

SEEDS_MAX = 30  # within which enough is flattened; mostly three will do


@pytest.mark.slow  # tests/store/log/upkeep/test_flatten.py has the quick ones
def test_streams_of_streams_hold_what_they_held(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[FlattenReport] = []

    def noted(*arguments: Any, **options: Any) -> FlattenReport:
        reports.append(flatten(*arguments, **options))
        return reports[-1]

    monkeypatch.setattr(limits, "FLATTEN_SPANS_FORCED", 2)
    monkeypatch.setattr(compact, "flatten", noted)
    for seed in range(1, SEEDS_MAX + 1):
        outcome = Simulation(seed, steps=6_000, mixes=ALGEBRA).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        if sum(report.files for report in reports) >= 3:
            return
    pytest.fail(f"{SEEDS_MAX} seeds flattened less than three segments")
