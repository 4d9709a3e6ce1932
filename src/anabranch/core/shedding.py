"""What to do with an append to a stream that has a load policy. Clocks are the caller's."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from anabranch.core.pace import BURST_S, TokenBucket
from anabranch.model.load_policy import RejectAbove, SampleAbove
from anabranch.model.rate import Rate

STRIDE_MAX: Final = 1 << 30

Rows = npt.NDArray[np.intp]


class Rejecting:
    """Refuses appends above a rate."""

    def __init__(self, policy: RejectAbove, now: float) -> None:
        self.policy = policy
        rates = policy.rate.events_per_s, policy.rate.bytes_per_s
        self._buckets = [None if rate is None else TokenBucket(rate, now, burst_s=BURST_S) for rate in rates]

    def admit(self, events: int, size: int, now: float) -> float:
        """0.0 if the append is accepted, which counts it; else how long to wait, in seconds. A large append passes, and
        those that follow wait for it."""
        wait_s = max(bucket.wait_s(now) for bucket in self._buckets if bucket is not None)
        if not wait_s:
            for bucket, amount in zip(self._buckets, (events, size), strict=True):
                if bucket is not None:
                    bucket.take(amount)
        return wait_s


class Sampling:
    """Measures the load, and says which part of it is kept."""

    def __init__(self, policy: SampleAbove, now: float) -> None:
        self.policy = policy
        self._events = self._bytes = 0.0  # of the last time, weighted less the longer ago
        self._at = now

    def stride(self, events: int, size: int, now: float) -> int:
        """One of so many events is kept, the append's own among those counted: a power of 2; 1 keeps all."""
        faded = math.exp((self._at - now) / BURST_S)
        self._events, self._bytes, self._at = self._events * faded + events, self._bytes * faded + size, now
        excess = max(_excess(self._events, self.policy.rate, "events"), _excess(self._bytes, self.policy.rate, "bytes"))
        return min(STRIDE_MAX, 1 << max(0, math.ceil(math.log2(excess)))) if excess > 1 else 1


def _excess(load: float, rate: Rate, unit: str) -> float:
    limit = rate.events_per_s if unit == "events" else rate.bytes_per_s
    return 0.0 if limit is None else load / BURST_S / limit


def kept_rows(count: int, stride: int, seed: int, *, some: bool) -> Rows:
    """The rows of an append that are kept: each with the chance 1 in `stride`, by a hash of the seed and its number, so a
    repeated append keeps the same ones. What a larger stride keeps, a smaller one keeps too. `some`: at least one."""
    mixed = mixed_bits(np.arange(count, dtype=np.uint64) + np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF))
    kept = np.flatnonzero(mixed <= np.uint64(0xFFFF_FFFF_FFFF_FFFF // stride))
    return kept if kept.size or not some else np.array([mixed.argmin()], np.intp)


def stride_of(count: int, kept: int, seed: int) -> int:
    """By which stride `kept` of `count` rows were kept, at least one: the smallest, as all of them keep the same rows.
    0 if there is none: other rows were appended."""
    stride = 1
    while stride <= STRIDE_MAX:
        if kept_rows(count, stride, seed, some=True).size == kept:
            return stride
        stride *= 2
    return 0


def mixed_bits(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64, which spreads neighbouring numbers over all 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
