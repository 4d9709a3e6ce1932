"""Applies the load policies of streams in one process of a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from anabranch.catalog.state.load import LOAD_POLICY
from anabranch.core.shedding import Rejecting, Rows, Sampling, kept_rows, stride_of
from anabranch.errors import RateLimited
from anabranch.model.ids import StreamId
from anabranch.model.load_policy import RejectAbove
from anabranch.store.facade import Store

Shed: TypeAlias = Literal["rejected", "sampled_out"]
D = TypeVar("D", pa.RecordBatch, pa.Table)


class Sampled(NamedTuple):
    """The `rows` that were kept of an append of `events` events; each stands for `weight` events."""

    events: int
    rows: Rows
    weight: float


class StreamLoads:
    """Applies load policies to the appends that arrive at this process alone. Thread-safe; only `refresh` blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.runtime.clock
        self._lock = store.runtime.tasks.lock()
        self._loads: dict[StreamId, Rejecting | Sampling] = {}
        self._offered: dict[StreamId, int] = {}  # the number of events offered so far to streams that are sampled
        self.count: Callable[[Shed, int], None] = lambda what, events: None

    def refresh(self, stream: StreamId) -> None:
        """Look up the stream's policy, and apply it from now on."""
        with self._store.catalog.reading() as reading:
            policy = reading.state(LOAD_POLICY, stream)
        with self._lock:
            present = self._loads.get(stream)
            if policy is None:
                self._loads.pop(stream, None)
                self._offered.pop(stream, None)
            elif present is None or present.policy != policy:
                now = self._clock.monotonic()
                load = Rejecting(policy, now) if isinstance(policy, RejectAbove) else Sampling(policy, now)
                self._loads[stream] = load

    def samples(self, stream: StreamId) -> bool:
        """True if the stream's events may be sampled: then append the batches that `thin` returns."""
        return isinstance(self._loads.get(stream), Sampling)

    def admit(self, stream: StreamId, events: int, size: int) -> None:
        """Count an append that is not sampled. Raises RateLimited if the append is rejected."""
        load = self._loads.get(stream)
        if not isinstance(load, Rejecting):
            return
        with self._lock:
            wait_s = load.admit(events, size, self._clock.monotonic())
        if wait_s:
            self.count("rejected", events)
            raise RateLimited(
                f"more is appended to the stream than its load policy accepts: try again after {wait_s:.3g} s", wait_s
            )

    def thin(self, stream: StreamId, data: D, *, number: str | None = None) -> tuple[D, Sampled | None]:
        """The part of a batch to append, perhaps empty, and the sample; None if the whole batch is kept. `number` identifies
        an append of a producer, of which at least one event is kept. Raises RateLimited."""
        load = self._loads.get(stream)
        if load is None or not data.num_rows:
            return data, None
        if isinstance(load, Rejecting):
            self.admit(stream, data.num_rows, data.nbytes)
            return data, None
        count = data.num_rows
        with self._lock:
            stride = load.stride(count, data.nbytes, self._clock.monotonic())
            offered = self._offered[stream] = self._offered.get(stream, 0) + count
        if stride == 1:
            return data, None
        seed = offered - count if number is None else _seed(number)
        rows = kept_rows(count, stride, seed, some=number is not None)
        if rows.size == count:
            return data, None
        weight = float(stride) if number is None else count / rows.size
        self.count("sampled_out", count - rows.size)
        return _weighted(data.take(pa.array(rows)), load.policy.weight, weight), Sampled(count, rows, weight)


def number_label(producer: str, epoch: int, sequence: int) -> str:
    """Identifies an append of a producer, so that its repetition by any broker keeps the same events."""
    return f"{epoch}/{sequence}/{producer}"


def sample_of_repeat(events: int, kept: int, number: str) -> Sampled | None:
    """The sample of a producer's append of `events` events, of which `kept` were stored the first time. None if all were
    kept, or if no sample of these events has that size."""
    stride = stride_of(events, kept, _seed(number)) if 0 < kept < events else 0
    return Sampled(events, kept_rows(events, stride, _seed(number), some=True), events / kept) if stride else None


def _seed(number: str) -> int:
    return xxhash.xxh3_64_intdigest(number.encode())


def _weighted(data: D, column: str, weight: float) -> D:
    """The rows with their weights, multiplied by weights that they already have from earlier sampling."""
    if column not in data.schema.names:
        return data.append_column(column, pa.array([weight] * data.num_rows, pa.float64()))
    index = data.schema.get_field_index(column)
    earlier = data.column(index).cast(pa.float64())
    return data.set_column(index, column, pc.multiply(pc.fill_null(earlier, 1.0), weight))
