"""How much each principal, and all callers together, may call, send and hold."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from anabranch.core.pace import BURST_S, TokenBucket
from anabranch.errors import RateLimited
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import Holdable, Holding

HELD_RETRY_S: Final = 1.0  # the retry time in RateLimited if a limit of held amounts is reached
_PRINCIPALS_KEPT: Final = 10_000
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits; None means no limit. Rates are per second, `memory` is in bytes."""

    calls_per_s: float | None = None
    bytes_per_s: float | None = None
    connections: int | None = None
    followers: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of each principal, of some principals by name, and of all callers of one broker together."""

    each: Quota = Quota(connections=1_000, followers=5_000, memory=512 * _MIB)
    named: dict[str, Quota] = field(default_factory=dict)
    total: Quota = Quota(connections=10_000, followers=20_000, memory=2_048 * _MIB)


class _Account:
    """The use of one principal, or of all callers together."""

    __slots__ = ("bytes", "calls", "held", "quota")

    def __init__(self, quota: Quota, now: float) -> None:
        self.quota = quota
        self.calls = None if quota.calls_per_s is None else TokenBucket(quota.calls_per_s, now, burst_s=BURST_S)
        self.bytes = None if quota.bytes_per_s is None else TokenBucket(quota.bytes_per_s, now, burst_s=BURST_S)
        self.held: dict[Holdable, int] = {}

    def limit(self, what: Holdable) -> int | None:
        limit: int | None = getattr(self.quota, what)
        return limit


class QuotaKeeper:
    """Counts calls, bytes and held amounts. Thread-safe; no method waits."""

    def __init__(self, quotas: Quotas, runtime: Runtime) -> None:
        self._quotas = quotas
        self._clock = runtime.clock
        self._lock = runtime.tasks.lock()
        self._total = _Account(quotas.total, self._clock.monotonic())
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._unlimited = _is_unlimited(quotas.total) and _is_unlimited(quotas.each) and not quotas.named

    def admit(self, name: str, calls: int, bytes_: int) -> None:
        """Count calls and bytes, or raise RateLimited and count nothing."""
        if self._unlimited:
            return
        with self._lock:
            now = self._clock.monotonic()
            account = self._account(name, now)
            charges = [
                (bucket, amount, whose, what)
                for bucket, amount, whose, what in (
                    (account.calls, calls, f"'{name}'", "calls"),
                    (account.bytes, bytes_, f"'{name}'", "bytes"),
                    (self._total.calls, calls, "all callers together", "calls"),
                    (self._total.bytes, bytes_, "all callers together", "bytes"),
                )
                if bucket is not None and amount
            ]
            for bucket, _, whose, what in charges:
                wait_s = bucket.wait_s(now)
                if wait_s:
                    raise RateLimited(
                        f"the limit of {bucket.rate:g} {what} per second of {whose} is reached: "
                        f"try again after {wait_s:.3g} s",
                        wait_s,
                    )
            for bucket, amount, _, _ in charges:
                bucket.take(amount)

    def hold(self, name: str, what: Holdable, amount: int) -> Holding:
        """Hold an amount of `what`, or raise RateLimited and hold nothing."""
        with self._lock:
            account = self._account(name, self._clock.monotonic())
            accounts = ((account, f"'{name}'"), (self._total, "all callers together"))
            for each, whose in accounts:
                limit = each.limit(what)
                if limit is not None and each.held.get(what, 0) + amount > limit:
                    unit = "bytes of memory" if what == "memory" else f"open {what}"
                    raise RateLimited(f"the limit of {limit} {unit} of {whose} is reached", HELD_RETRY_S)
            for each, _ in accounts:
                each.held[what] = each.held.get(what, 0) + amount

        def release() -> None:
            with self._lock:
                for each, _ in accounts:
                    each.held[what] -= amount
                    if not each.held[what]:
                        del each.held[what]

        return Holding(release)

    def held(self) -> dict[str, int]:
        """The amounts that all callers together hold now."""
        with self._lock:
            return {str(what): amount for what, amount in self._total.held.items()}

    def _account(self, name: str, now: float) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _Account(self._quotas.named.get(name, self._quotas.each), now)
            if len(self._accounts) > _PRINCIPALS_KEPT:
                self._forget_idle()
        self._accounts.move_to_end(name)
        return account

    def _forget_idle(self) -> None:
        """Forget the least recently used account that holds nothing."""
        for name, account in self._accounts.items():
            if not account.held:
                del self._accounts[name]
                return


def _is_unlimited(quota: Quota) -> bool:
    return quota.calls_per_s is None and quota.bytes_per_s is None
