"""Whole simulated lives: fixed seeds are sound and repeat themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from anabranch.testing.clients import ALGEBRA
from anabranch.testing.simulation import Simulation

pytestmark = pytest.mark.sim

STEPS = 5_000


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_life_is_sound(seed: int) -> None:
    outcome = Simulation(seed, steps=STEPS).run()
    assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
    assert outcome.done["event acknowledged"]  # how many depends on the casts: some hardly write


@pytest.mark.parametrize("seed", [1, 2])
def test_a_life_with_its_blobs_in_a_bucket_is_sound_and_repeats_itself(seed: int) -> None:
    outcome = Simulation(seed, steps=STEPS, place="s3").run()
    assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
    assert outcome.done.total() > 20  # what is done depends on who was drawn
    assert Simulation(seed, steps=STEPS, place="s3").run().digest == outcome.digest


def test_a_life_of_streams_of_streams_is_sound() -> None:
    done: Counter[str] = Counter()
    for seed in range(1, 11):
        outcome = Simulation(seed, steps=STEPS, casts=ALGEBRA).run()
        assert outcome.sound, f"seed {seed}: {outcome.violations or outcome.error}"
        done += outcome.done
        if seed >= 2 and all(done[what] for what in ("append of a stream", "stitch", "copy", "rename")):
            return
    pytest.fail(f"in 10 lives there was only {done}")


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
