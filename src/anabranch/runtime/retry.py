"""Trying again what has failed: how often, for how long, after which pauses, and after which errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from anabranch import limits
from anabranch.errors import AppendUncertain
from anabranch.runtime.log_events import TRANSACTION_RETRIED, LogEvent
from anabranch.runtime.ports import Runtime

__all__ = ["UNCERTAIN", "Retries", "RetryPolicy"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to try again, and when to give up. Pauses grow from `pause_s_min` by the factor `growth` up to
    `pause_s_max`; the share `jitter` of each is random, so that those that failed together do not come back together.

    It gives up after `attempts_max` attempts, or `deadline_s` seconds after the first began, but not before the attempt
    `attempts_min`; None means no such limit. `errors` are those after which `call` tries again. `event` is logged before
    each pause, with the fields `pause_s` and `error`.
    """

    pause_s_min: float
    pause_s_max: float
    growth: float = 2.0
    jitter: float = 0.5
    attempts_min: int = 1
    attempts_max: int | None = None
    deadline_s: float | None = None
    errors: tuple[type[Exception], ...] = ()
    event: LogEvent | None = None

    def pause_s(self, failures: int, chance: float = 1.0) -> float:
        """The pause in seconds after this many failures, at least one. `chance`, from 0 to 1, is its random part."""
        assert failures >= 1
        pause = min(self.pause_s_max, self.pause_s_min * self.growth ** min(failures - 1, 64))
        return pause * (1 - self.jitter * (1 - chance))

    def begin(self, runtime: Runtime, *, until: float | None = None) -> Retries:
        """The retries of one call, whose first attempt begins now. `until`: the deadline on the monotonic clock, if it
        is not `deadline_s` from now."""
        return Retries(self, runtime, until)

    def call(self, runtime: Runtime, act: Callable[[], T]) -> T:
        """Call `act` until it succeeds, and return its result. Raises the error of its last attempt, and at once any
        that is not in `errors`."""
        retries = self.begin(runtime)
        while True:
            try:
                return act()
            except self.errors as exc:
                if not retries.again(exc):
                    raise


class Retries:
    """The attempts of one call under a policy."""

    def __init__(self, policy: RetryPolicy, runtime: Runtime, until: float | None = None) -> None:
        self._policy = policy
        self._runtime = runtime
        self._until = until
        if until is None and policy.deadline_s is not None:
            self._until = runtime.clock.monotonic() + policy.deadline_s
        self.failures = 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 after it, infinite without one."""
        return float("inf") if self._until is None else max(0.0, self._until - self._runtime.clock.monotonic())

    def again(self, error: Exception | None = None) -> bool:
        """Call it after a failure: pauses, but not beyond the deadline, and returns True. Returns False at once if no
        further attempt is due."""
        policy = self._policy
        self.failures += 1
        left_s = self.left_s
        if policy.attempts_max is not None and self.failures >= policy.attempts_max:
            return False
        if left_s == 0 and self.failures >= policy.attempts_min:
            return False
        # Without jitter no random number is drawn: the lock between processes pauses for a tenth of a millisecond.
        chance = self._runtime.ids.bits(16) / (1 << 16) if policy.jitter else 1.0
        pause_s = min(left_s or policy.pause_s_min, policy.pause_s(self.failures, chance))
        if policy.event is not None:
            policy.event(pause_s=pause_s, error=error)
        self._runtime.tasks.sleep(pause_s)
        return True


# For a transaction that recognizes what it has already done, so that it can be repeated if its answer was lost.
UNCERTAIN: Final = RetryPolicy(
    pause_s_min=0.05,
    pause_s_max=1.0,
    attempts_max=limits.REQUEST_TRIES_MAX,
    errors=(AppendUncertain,),
    event=TRANSACTION_RETRIED,
)
