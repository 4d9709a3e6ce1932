"""What clients of several processes do together, in the simulated world: groups, transactions, byte streams, upkeep,
watermarks, notifications."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anabranch.testing.clients import (
    LISTENERS,
    SCRIBES,
    SHARERS,
    TIMEKEEPERS,
    TOGETHER,
    TRANSACTORS,
    UPKEEPERS,
    Cast,
)
from anabranch.testing.simulation import Simulation

pytestmark = pytest.mark.sim

SHORT = 1_200  # steps of a life that is one interleaving of many


@pytest.mark.parametrize(
    ("casts", "done"),
    [
        (TRANSACTORS, ("transaction committed", "transaction aborted", "transaction flushed", "transaction resumed")),
        (SCRIBES, ("bytes flushed", "bytes read", "bytes followed", "bytes let go", "bytes copied")),
        (UPKEEPERS, ("round of upkeep", "rescaled")),
        (TIMEKEEPERS, ("timed event", "watermark", "timed stream scaled")),
        (LISTENERS, ("life to tell of", "notification heard", "told to a listener", "scene read to its end")),
    ],
    ids=["transactions", "bytes", "upkeep", "watermarks", "notifications"],
)
def test_what_is_done_together_is_sound_whatever_happens(casts: Sequence[Cast], done: Sequence[str]) -> None:
    total = dict.fromkeys(done, 0)
    for seed in range(1, 21):
        outcome = Simulation(seed, steps=3_000, casts=casts).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        total = {what: count + outcome.done[what] for what, count in total.items()}
        if seed >= 3 and all(total.values()):
            return
    pytest.fail(f"in 20 lives there was only {total}")


def test_short_lives_of_groups_are_sound_in_every_interleaving() -> None:
    shared = 0
    for seed in range(1, 13):
        outcome = Simulation(seed, steps=SHORT, casts=SHARERS).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        shared += outcome.done["shared batch"]
    assert shared > 12


@pytest.mark.parametrize("seed", [3, 4])
def test_a_life_of_all_that_is_done_together_repeats_itself(seed: int) -> None:
    first = Simulation(seed, steps=SHORT, casts=TOGETHER).run()
    assert first.sound, (first.violations, first.error)
    assert Simulation(seed, steps=SHORT, casts=TOGETHER).run().digest == first.digest
