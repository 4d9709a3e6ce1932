"""Output of a group reader, written in one atomic unit with the positions it was made from, each unit once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.errors import AnabranchError, AppendUncertain, StoreUnavailable
from anabranch.groups.membership import Membership
from anabranch.groups.ports import Outputs
from anabranch.model.append import Part
from anabranch.model.position import StreamSegment


class _OutputUnit(NamedTuple):
    number: int
    handed_out: int
    positions: Mapping[StreamSegment, int]
    staged: Sequence[Any]


class _AlreadyWritten(Exception):
    """The unit was written already."""


class OutputUnits:
    """The output units of one opening of a reader, numbered as a series, so that retrying a unit that was written
    writes nothing.

    Units that could not be written, or whose outcome is unknown, stay pending and are written first at the next commit.
    For one thread at a time.
    """

    def __init__(self, membership: Membership, outputs: Outputs, *, series: str | None = None) -> None:
        """`series` is the name of the series if it continues across openings of the reader; by default it ends with
        this one."""
        self._membership = membership
        self._outputs = outputs
        self._series = series or membership.session
        self._written = 0 if series is None else outputs.last(series)
        self._number = self._written  # of the last unit that was staged: the number of a refused unit is not used again
        self._pending: deque[_OutputUnit] = deque()

    @property
    def written(self) -> int:
        """The number of the last unit that was written; 0 before the first."""
        return self._written

    def commit(self, positions: Mapping[StreamSegment, int], outputs: Mapping[str, Any], *, handed_out: int) -> None:
        """Write batches by stream and have the positions accepted, both or neither. `handed_out` counts the events
        handed to the caller so far: if it equals the count when the last pending unit was staged, the call is a retry
        of that unit. The positions can't tell, since the reader's background task adds and removes segments at any
        time.

        Raises ReaderNotInGroup and what `Writer.write_batch` refuses batches with; then no pending unit is written, now
        or later. Raises StoreUnavailable and AppendUncertain; then the unit stays pending.
        """
        if outputs and not self._is_retry(positions, handed_out):
            staged = self._outputs.stage(outputs)
            self._number += 1
            self._pending.append(_OutputUnit(self._number, handed_out, positions, staged))
        while self._pending:
            self._write(self._pending[0])
            self._pending.popleft()

    def _is_retry(self, positions: Mapping[StreamSegment, int], handed_out: int) -> bool:
        """True if no event was handed out since the last pending unit was staged."""
        return bool(self._pending) and self._pending[-1].handed_out == handed_out

    def _write(self, unit: _OutputUnit) -> None:
        def publish(part: Part) -> None:
            if not self._outputs.publish(unit.staged, part, series=self._series, number=unit.number):
                raise _AlreadyWritten

        try:
            self._membership.commit(unit.positions, publish)
        except _AlreadyWritten:
            pass  # the next sync fetches the group's new state
        except (AppendUncertain, StoreUnavailable):
            raise
        except AnabranchError:
            self._pending.clear()
            raise
        self._written = unit.number

    def end(self) -> None:
        """End the series; nothing more is written. After StoreUnavailable or AppendUncertain the series' row may stay
        in the catalog, which is harmless."""
        if self._number:
            self._outputs.end(self._series)
