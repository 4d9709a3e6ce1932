"""Reader groups in the simulated world: killed, stalled, misled by clocks, with answers lost, in any interleaving."""

from __future__ import annotations

import pytest

from tests.simulation.clients import GROUPS, SUBSCRIBERS
from tests.simulation.planted_faults.groups import AWAY
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim


@pytest.mark.slow
def test_a_commit_that_failed_is_retried_after_a_rebalance_and_written_once() -> None:
    retried = 0
    for seed in range(1, 9):
        outcome = Simulation(seed, steps=5_000, mixes=GROUPS, fault_rates=AWAY).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        retried += outcome.done["shared commit retried after a rebalance"]
    assert retried, "no seed retried a failed commit after a rebalance"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_group_writes_each_output_once_whatever_happens(seed: int) -> None:
    outcome = Simulation(seed, steps=10_000, mixes=GROUPS).run()
    assert outcome.sound, (outcome.violations, outcome.error)
    assert outcome.done["shared batch"] > 3


@pytest.mark.slow
def test_retention_waits_for_every_subscriber_whatever_happens() -> None:
    truncated = 0
    for seed in (2, 3):
        outcome = Simulation(seed, steps=6_000, mixes=SUBSCRIBERS).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        assert outcome.done["consumed batch"] > 3
        truncated += outcome.done["consumed stream truncated"]
    assert truncated, "nothing was let go in any run"
