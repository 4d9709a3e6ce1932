"""Finds changes of the mean of a value, key by key, with river's detectors. Their state is bytes. Needs no Spark."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.spark.pipelines.windows.columns import OFFSET, SEGMENT, TIME
from anabranch.spark.pipelines.windows.grouping import codes_of, group

if TYPE_CHECKING:
    from river.drift import ADWIN, PageHinkley

__all__ = ["DRIFT", "DRIFT_FIELDS", "METHODS", "STATE", "VALUE", "DriftDetector", "MeanTracker", "detect"]

Method = Literal["adwin", "page_hinkley"]

METHODS: Final[Mapping[str, Mapping[str, type]]] = {
    "adwin": {"delta": float, "clock": int, "max_buckets": int, "min_window_length": int, "grace_period": int},
    "page_hinkley": {"min_instances": int, "delta": float, "threshold": float, "alpha": float, "mode": str},
}
"""The methods, and the parameters of each, with river's names, meanings and defaults."""

DRIFT: Final = "drift"
DRIFT_FIELDS: Final = pa.struct(
    [
        ("segment", pa.int64()),
        ("offset", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("mean_before", pa.float64()),
        ("mean_after", pa.float64()),
    ]
)
VALUE: Final = "_anabranch_value"
STATE: Final = "_anabranch_state"
_RECENT: Final = 100  # the newest values, among which the start of a change is searched


@dataclass(frozen=True, slots=True)
class DriftDetector:
    """A method with its parameters, and the names of the columns of the key: none for a detector per segment."""

    method: Method
    parameters: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()


class MeanTracker:
    """Follows one key's values. Unpickled, it continues where it was pickled: checkpoints contain river's pickles."""

    def __init__(self, detector: DriftDetector) -> None:
        """Raises MissingExtra without river, InvalidArgument for parameters that it refuses."""
        with optional("drift detection", "drift"):
            from river.drift import ADWIN, PageHinkley
        methods: dict[str, type[ADWIN] | type[PageHinkley]] = {"adwin": ADWIN, "page_hinkley": PageHinkley}
        try:
            self._detector: Any = methods[detector.method](**detector.parameters)
        except (ValueError, TypeError) as exc:
            raise InvalidArgument(f"{detector.method}: {exc}") from exc
        # The sum and the number of the values since the last change. River's detectors tell only that there is one:
        # ADWIN's own mean still has values from before it.
        self._sum, self._count = 0.0, 0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def update(self, value: float) -> tuple[float, float] | None:
        """Take the next value. Returns the mean before and after a change that it reveals."""
        self._detector.update(value)
        self._sum, self._count = self._sum + value, self._count + 1
        self._recent.append(value)
        if not self._detector.drift_detected:
            return None
        changed = _since_change(np.array(self._recent))
        total, count = float(changed.sum()), len(changed)
        earlier = self._count - count
        before = (self._sum - total) / earlier if earlier else total / count
        self._sum, self._count = total, count
        self._recent = deque(changed.tolist(), maxlen=_RECENT)
        return before, total / count


def _since_change(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The last values, from where they change most: the split with the least squares."""
    if len(values) < 2:
        return values
    counts = np.arange(1, len(values))
    sums = np.cumsum(values)[:-1]
    differences = (values.sum() - sums) / (len(values) - counts) - sums / counts
    return values[int(np.argmax(counts * (len(values) - counts) * differences**2)) + 1 :]


class Detected(NamedTuple):
    """The changes that rows reveal: the columns of the key and `DRIFT`; and the state after the rows, a row a key."""

    changes: pa.Table
    state: pa.Table


def detect(rows: pa.Table, state: pa.Table | None, detector: DriftDetector, columns: Sequence[str]) -> Detected:
    """Take the rows of several keys, those of a key in their order. `columns` are those of the key; the others are `VALUE`,
    `TIME`, `SEGMENT` and `OFFSET`. Rows without a value, and those whose value is NaN or infinite, are left out."""
    values = rows.column(VALUE).to_numpy(zero_copy_only=False).astype(np.float64)
    rows = rows.filter(pa.array(np.isfinite(values)))
    values = values[np.isfinite(values)]
    known = 0 if state is None else state.num_rows
    keys = rows.select(list(columns))
    if state is not None:
        keys = pa.concat_tables([state.select(list(columns)), keys])
    if not keys.num_rows:
        return Detected(_changes(rows, [], columns), _state(keys, [], []))
    groups = group(codes_of(keys.columns))
    found: list[tuple[int, float, float]] = []
    firsts: list[int] = []
    blobs: list[bytes] = []
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        own = groups.order[start : start + count].tolist()
        blob: bytes | None = state.column(STATE)[own[0]].as_py() if state is not None and own[0] < known else None
        new = own if blob is None else own[1:]
        firsts.append(own[0])
        if blob is not None and not new:
            blobs.append(blob)
            continue
        tracker: MeanTracker = MeanTracker(detector) if blob is None else pickle.loads(blob)
        updated = ((index - known, tracker.update(float(values[index - known]))) for index in new)
        found += [(index, *means) for index, means in updated if means is not None]
        blobs.append(pickle.dumps(tracker))
    return Detected(_changes(rows, sorted(found), columns), _state(keys, firsts, blobs))


def _state(keys: pa.Table, firsts: list[int], blobs: list[bytes]) -> pa.Table:
    chosen = keys.take(pa.array(firsts, pa.int64()))
    return chosen.append_column(STATE, pa.array(blobs, pa.binary())).combine_chunks()


def _changes(rows: pa.Table, found: list[tuple[int, float, float]], columns: Sequence[str]) -> pa.Table:
    own = rows.take(pa.array([index for index, _, _ in found], pa.int64())).combine_chunks()
    fields = [own.column(SEGMENT), own.column(OFFSET), own.column(TIME), own.column(VALUE)]
    arrays = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in fields]
    arrays += [pa.array([means[number] for _, *means in found], pa.float64()) for number in (0, 1)]
    typed = [array.cast(each.type) for array, each in zip(arrays, DRIFT_FIELDS, strict=True)]
    drifts = pa.StructArray.from_arrays(typed, fields=list(DRIFT_FIELDS))
    return own.select(list(columns)).append_column(DRIFT, drifts)
