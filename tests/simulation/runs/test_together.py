"""What clients of several processes do together, in the simulated world: groups, transactions, byte streams, upkeep,
watermarks, notifications."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.simulation.clients import (
    BYTE_STREAMS,
    GROUPS,
    NOTIFICATIONS,
    PRODUCERS,
    TOGETHER,
    TRANSACTIONS,
    UPKEEP,
    WATERMARKS,
    ClientMix,
)
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim

SHORT = 1_200  # steps of a life that is one interleaving of many


@pytest.mark.parametrize(
    ("mixes", "done"),
    [
        (TRANSACTIONS, ("transaction committed", "transaction aborted", "transaction flushed", "transaction resumed")),
        (BYTE_STREAMS, ("bytes flushed", "bytes read", "bytes followed", "bytes let go", "bytes copied")),
        (UPKEEP, ("round of upkeep", "rescaled")),
        (PRODUCERS, ("repeated append", "take-over", "append of an old owner", "event of a producer")),
        (WATERMARKS, ("timed event", "watermark", "timed stream scaled")),
        (NOTIFICATIONS, ("life to tell of", "notification heard", "told to a listener", "scene read to its end")),
    ],
    ids=["transactions", "bytes", "upkeep", "producers", "watermarks", "notifications"],
)
def test_what_is_done_together_is_sound_whatever_happens(mixes: Sequence[ClientMix], done: Sequence[str]) -> None:
    total = dict.fromkeys(done, 0)
    for seed in range(1, 21):
        outcome = Simulation(seed, steps=3_000, mixes=mixes).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        total = {what: count + outcome.done[what] for what, count in total.items()}
        if seed >= 3 and all(total.values()):
            return
    pytest.fail(f"in 20 workloads there was only {total}")


@pytest.mark.slow
def test_short_lives_of_groups_are_sound_in_every_interleaving() -> None:
    shared = 0
    for seed in range(1, 13):
        outcome = Simulation(seed, steps=SHORT, mixes=GROUPS).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        shared += outcome.done["shared batch"]
    assert shared > 12


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_life_of_all_that_is_done_together_repeats_itself(seed: int) -> None:
    first = Simulation(seed, steps=SHORT, mixes=TOGETHER).run()
    assert first.sound, (first.violations, first.error)
    assert Simulation(seed, steps=SHORT, mixes=TOGETHER).run().digest == first.digest
