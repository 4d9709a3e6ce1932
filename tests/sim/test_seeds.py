"""Whole simulated lives: fixed seeds are sound and repeat themselves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.testing.simulation import Simulation

pytestmark = pytest.mark.sim

STEPS = 5_000


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_life_is_sound(seed: int) -> None:
    outcome = Simulation(seed, steps=STEPS).run()
    assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
    assert outcome.done["event acknowledged"] > 50


def test_a_life_repeats_itself_in_another_interpreter() -> None:
    here = Simulation(11, steps=STEPS).run()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "anabranch.testing.sim", "--seed", "11", "--steps", str(STEPS)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"digest {here.digest}" in run.stdout
