"""Whole simulated workloads: fixed seeds have no violations and repeat themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.clients import ALGEBRA
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim

STEPS = 5_000


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 7))])
def test_a_life_is_sound(seed: int) -> None:
    outcome = Simulation(seed, steps=STEPS).run()
    assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
    assert outcome.done["event acknowledged"]  # how many depends on the mixes: some hardly write


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_life_with_its_blobs_in_a_bucket_is_sound_and_repeats_itself(seed: int) -> None:
    outcome = Simulation(seed, steps=STEPS, place="s3").run()
    assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
    assert outcome.done.total() > 20  # what is done depends on who was drawn
    assert Simulation(seed, steps=STEPS, place="s3").run().digest == outcome.digest


@pytest.mark.slow
def test_a_life_of_streams_of_streams_is_sound() -> None:
    done: Counter[str] = Counter()
    for seed in range(1, 11):
        outcome = Simulation(seed, steps=STEPS, mixes=ALGEBRA).run()
        assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
        done += outcome.done
        if seed >= 2 and all(done[what] for what in ("append of a stream", "stitch", "copy", "rename")):
            return
    pytest.fail(f"in 10 workloads there was only {done}")


@pytest.mark.slow
def test_a_life_repeats_itself_in_another_interpreter() -> None:
    here = Simulation(11, steps=STEPS).run()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", "11", "--steps", str(STEPS)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"digest {here.digest}" in run.stdout
