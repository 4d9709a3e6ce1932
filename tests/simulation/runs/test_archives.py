"""Archives and imports beside everything else that goes on in a store, under all faults."""

from __future__ import annotations

import pytest

from tests.simulation.clients.mixes import ARCHIVES
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [1, 4])
def test_what_comes_back_is_what_went_out(seed: int) -> None:
    outcome = Simulation(seed, steps=4_000, mixes=ARCHIVES).run()
    assert outcome.sound, (outcome.violations, outcome.error)
    assert outcome.done["archive"] > 1
    assert outcome.done["import"] > 1
