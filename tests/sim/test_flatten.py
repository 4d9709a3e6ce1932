"""Short spans are put together while everything else goes on, and fails: no event moves, is lost or comes twice."""

from __future__ import annotations

import pytest

from anabranch import limits
from anabranch.testing.clients import ALGEBRA
from anabranch.testing.simulation import Simulation

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [2, 7, 8])
def test_streams_of_streams_hold_what_they_held(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FLATTEN_SPANS_FORCED", 2)
    outcome = Simulation(seed, steps=6_000, casts=ALGEBRA).run()
    assert outcome.sound, (seed, outcome.violations, outcome.error)
