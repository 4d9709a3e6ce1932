"""Whole simulated lives: fixed seeds are sound and repeat themselves, and planted wounds are found.

Each wound breaks one promise of the store for the length of a test. A simulator that does not find it proves nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from anabranch.blobs.port import BlobInfo
from anabranch.errors import AppendUncertain
from anabranch.log.appender import Appender
from anabranch.log.collect import _Collection
from anabranch.log.commit import Committer, Encoded, Outcome
from anabranch.log.tail import Tail
from anabranch.model.append import Commit, Unit, Verdict
from anabranch.streams.courier import Courier
from anabranch.testing import sim
from anabranch.testing.faults import SimCatalog
from anabranch.testing.simulation import Outcome as RunOutcome
from anabranch.testing.simulation import Simulation

pytestmark = pytest.mark.sim

STEPS = 5_000
SEEDS_MAX = 40  # within which a wound must be found


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


# ---------------------------------------------------------------------- wounds


class _Undo(Exception):
    """Rolls a transaction back."""


def acknowledge_before_commit(patch: pytest.MonkeyPatch) -> None:
    """The answer is worked out and given; the commit itself follows a little later."""
    commit = SimCatalog.commit

    def answer(self: SimCatalog, what: Commit) -> tuple[tuple[Verdict, ...], ...]:
        verdicts: list[tuple[Verdict, ...]] = []
        try:
            with self.inner.writing() as txn:
                verdicts += [txn.append(unit, now=what.now, blobs=what.blobs) for unit in what.units]
                raise _Undo
        except _Undo:
            pass

        def later() -> None:
            self._gate.scheduler.park("lazy", timeout=0.002, group=self._gate.group)
            with suppress(AppendUncertain):
                commit(self, what)

        self._gate.scheduler.spawn("lazy", later, self._gate.group)
        return tuple(verdicts)

    patch.setattr(SimCatalog, "commit", answer)


def retry_blindly(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer, simply append again."""

    def resolve(self: Committer, encoded: Encoded, units: Sequence[Unit], uncertain: AppendUncertain) -> list[Outcome]:
        again = tuple(replace(unit, parts=tuple(replace(p, sequence=None) for p in unit.parts)) for unit in units)
        blobs = () if encoded.blob is None else (encoded.blob,)
        return list(self._catalog.commit(Commit(again, self._runtime.clock.now(), blobs)))

    patch.setattr(Committer, "_resolve", resolve)


def collect_without_the_horizon(patch: pytest.MonkeyPatch) -> None:
    """Files that the catalog does not list are removed however young they are."""

    def all_files(self: _Collection, prefix: str) -> Iterator[BlobInfo]:
        yield from self._blobs.list(prefix)

    patch.setattr(_Collection, "_old_files", all_files)


def send_refused_events_last(patch: pytest.MonkeyPatch) -> None:
    """What a seal refused is re-routed behind newer events of its keys."""
    landed_all = Courier._landed_all

    def last(self: Courier) -> None:
        if not self._in_flight:
            for _, piece in self._returned:
                self._queue.append(piece)
                self._queue_bytes += piece.size
            self._returned.clear()
        landed_all(self)

    patch.setattr(Courier, "_landed_all", last)


def sleep_through_other_processes(patch: pytest.MonkeyPatch) -> None:
    """A following reader is not woken by what other processes commit."""
    patch.setattr(Tail, "_poll", lambda self: None)


def forget_to_wake_writers(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a commit that another task carries out is not told of its end."""
    carry_out = Appender._carry_out

    def silently(self: Appender, *args: Any) -> None:
        notify = self._changed.notify_all
        self._changed.notify_all = lambda: None  # type: ignore[method-assign]
        try:
            carry_out(self, *args)
        finally:
            self._changed.notify_all = notify  # type: ignore[method-assign]

    patch.setattr(Appender, "_carry_out", silently)


@pytest.mark.parametrize(
    ("wound", "told"),
    [
        (acknowledge_before_commit, "acknowledged"),
        (retry_blindly, "stored more than once"),
        (collect_without_the_horizon, "missing"),
        (send_refused_events_last, "out of order"),
        (sleep_through_other_processes, "did not see them"),
        (forget_to_wake_writers, "does not end"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_planted_wound_is_found(
    wound: Callable[[pytest.MonkeyPatch], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wound(monkeypatch)
    seen: list[str] = []
    for seed in range(1, SEEDS_MAX + 1):
        outcome = Simulation(seed, steps=STEPS).run()
        if not outcome.sound:
            seen.append(f"seed {seed}: {_account(outcome)[:300]}")
            if told in _account(outcome):
                print(seen[-1])
                return
    pytest.fail(f"not found by {SEEDS_MAX} seeds; found instead: {seen}")


def _account(outcome: RunOutcome) -> str:
    cause = None if outcome.error is None else outcome.error.__cause__
    return " | ".join(map(str, [*outcome.violations, outcome.error, cause]))


def test_a_failure_tells_how_to_replay_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    retry_blindly(monkeypatch)
    assert sim.main(["--seed", "1", "--runs", str(SEEDS_MAX), "--steps", str(STEPS)]) == 1
    text = capsys.readouterr().out
    assert "VIOLATION with seed" in text
    assert f"--steps {STEPS} --processes 3" in text
