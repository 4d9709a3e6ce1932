"""Accepted events that wait to be routed and committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.core.raw_event import RawEvent
from anabranch.core.routing import KeyPoints
from anabranch.errors import AnabranchError
from anabranch.log.prewrite import PrewrittenMessage
from anabranch.writing.acknowledgement import Acknowledgement

Rows = npt.NDArray[np.intp]


@dataclass(slots=True)
class PendingBatch:
    """Events waiting to be routed. `origins` lists their acknowledgements, in order, each with the row numbers of its
    events. `points`, if known, are the events' key points. An `atomic` batch is appended as a whole or not at all; with
    `expected`, a batch is appended only if its segment holds that many events. A `large` batch is a single event, which
    is `prewritten` once it is durable. A batch of a producer is atomic, and holds `appends` appends, numbered from
    `number` on; if it is `repeatable`, its caller chose the number, so it may be a repeat."""

    events: pa.RecordBatch | RawEvent
    origins: list[tuple[Acknowledgement, Rows]]
    points: KeyPoints | None = None
    atomic: bool = False
    expected: int | None = None
    number: int | None = None
    appends: int = 1
    repeatable: bool = False
    large: bool = False
    prewritten: PrewrittenMessage | None = None
    offered: bool = False  # it may be in the writer's queue
    queued: bool = False  # it was in that queue, and may have left it
    refused: AnabranchError | None = None  # set if the queue refused all its events
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.events.nbytes

    @property
    def alone(self) -> bool:
        """True if it must not be joined with its neighbours."""
        return self.atomic or self.large or self.expected is not None

    @property
    def bytes_to_write(self) -> int:
        """The number of bytes that a commit has to encode and write for it."""
        return self.size if self.prewritten is None else 0

    def origins_of(self, rows: Rows) -> list[tuple[Acknowledgement, Rows, int]]:
        """The origins of the events at the rising `rows` of the batch: (acknowledgement, their numbers in it, position
        of the first within `rows`)."""
        if len(self.origins) == 1:
            acknowledgement, numbers = self.origins[0]
            if len(numbers) == 1:
                return [(acknowledgement, numbers, 0)]
            return [(acknowledgement, numbers[rows], 0)]
        found, begin = [], 0
        for acknowledgement, numbers in self.origins:
            low, high = np.searchsorted(rows, [begin, begin + len(numbers)])
            if high > low:
                found.append((acknowledgement, numbers[rows[low:high] - begin], int(low)))
            begin += len(numbers)
        return found

    def refuse(self, error: AnabranchError) -> None:
        """Report to the acknowledgements that all events were refused. May be repeated."""
        self.refused = error
        for acknowledgement, rows in self.origins:
            acknowledgement.record_refusal(error, rows, key=int(rows[0]))

    def mark_accepted(self) -> None:
        """Record in the acknowledgements that the events are accepted, or refused. Those of one batch come in order."""
        for acknowledgement, rows in self.origins:
            acknowledgement.accepted = max(acknowledgement.accepted, int(rows[-1]) + 1)


def join(batches: Sequence[PendingBatch]) -> PendingBatch:
    """Several pending batches as one, in order."""
    if len(batches) == 1:
        return batches[0]
    points = [batch.points for batch in batches if batch.points is not None]
    return PendingBatch(
        pa.concat_batches([_as_columns(batch.events) for batch in batches]),
        [origin for batch in batches for origin in batch.origins],
        KeyPoints.concat(points) if len(points) == len(batches) else None,
    )


def _as_columns(events: pa.RecordBatch | RawEvent) -> pa.RecordBatch:
    return events.batch() if isinstance(events, RawEvent) else events
