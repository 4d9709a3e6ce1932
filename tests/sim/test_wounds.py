"""Planted wounds are found. Each breaks one promise of the store; a simulator that does not find it proves nothing."""

from __future__ import annotations

import pytest

from anabranch.testing import sim
from anabranch.testing.simulation import Outcome, Simulation
from anabranch.testing.wounds import WOUNDS, Wound, retry_blindly
from anabranch.testing.wounds_algebra import ALGEBRA_WOUNDS
from anabranch.testing.wounds_bucket import BUCKET_WOUNDS
from anabranch.testing.wounds_groups import GROUP_WOUNDS
from anabranch.testing.wounds_listeners import LISTENER_WOUNDS
from anabranch.testing.wounds_recovery import RECOVERY_WOUNDS
from anabranch.testing.wounds_transactions import TRANSACTION_WOUNDS

pytestmark = pytest.mark.sim

STEPS = 5_000
SEEDS_MAX = 60  # within which a wound must be found; most bleed within five


@pytest.mark.parametrize(
    "wound",
    [*WOUNDS, *ALGEBRA_WOUNDS, *BUCKET_WOUNDS, *GROUP_WOUNDS, *LISTENER_WOUNDS, *RECOVERY_WOUNDS, *TRANSACTION_WOUNDS],
    ids=lambda wound: wound.name,
)
def test_a_planted_wound_is_found(wound: Wound) -> None:
    seen: list[str] = []
    with wound.plant():
        for seed in range(1, SEEDS_MAX + 1):
            outcome = Simulation(seed, steps=STEPS, weather=wound.weather, casts=wound.casts, place=wound.place).run()
            if not outcome.sound:
                account = _account(outcome)
                seen.append(f"seed {seed}: {account[:300]}")
                if any(told in account for told in wound.told):
                    print(seen[-1])
                    return
    pytest.fail(f"not found by {SEEDS_MAX} seeds; found instead: {seen}")


def _account(outcome: Outcome) -> str:
    cause = None if outcome.error is None else outcome.error.__cause__
    return " | ".join(map(str, [*outcome.violations, outcome.error, cause]))


def test_a_failure_tells_how_to_replay_it(capsys: pytest.CaptureFixture[str]) -> None:
    with retry_blindly():
        assert sim.main(["--seed", "1", "--runs", str(SEEDS_MAX), "--steps", str(STEPS)]) == 1
    text = capsys.readouterr().out
    assert "VIOLATION with seed" in text
    assert f"--steps {STEPS} --processes 3" in text
