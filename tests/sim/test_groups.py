"""Reader groups in the simulated world: killed, stalled, misled by clocks, with answers lost, in any interleaving."""

from __future__ import annotations

import pytest

from anabranch.testing.clients import SHARERS
from anabranch.testing.simulation import Simulation

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [1, 2])
def test_a_group_makes_of_each_event_one_whatever_happens(seed: int) -> None:
    outcome = Simulation(seed, steps=10_000, casts=SHARERS).run()
    assert outcome.sound, (outcome.violations, outcome.error)
    assert outcome.done["shared batch"] > 3
