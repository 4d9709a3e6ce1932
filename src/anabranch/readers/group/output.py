"""Output of a group reader, written in one atomic unit with the positions it was made from: each unit once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.errors import AnabranchError, AppendUncertain, StoreUnavailable
from anabranch.model.append import Part
from anabranch.model.position import StreamSegment
from anabranch.readers.group.ports import Outputs
from anabranch.readers.group.share import Share


class _Unit(NamedTuple):
    number: int
    positions: Mapping[StreamSegment, int]
    staged: Sequence[Any]


class _Landed(Exception):
    """The unit is there already."""


class OutputUnits:
    """The units of one opening of a reader: a series, so that asking again for one that landed writes nothing.

    Units that could not be written, or of which nobody knows whether they were, stay at hand and go first at the next
    commit. For one thread at a time.
    """

    def __init__(self, share: Share, outputs: Outputs) -> None:
        self._share = share
        self._outputs = outputs
        self._number = 0
        self._pending: deque[_Unit] = deque()

    def commit(self, positions: Mapping[StreamSegment, int], outputs: Mapping[str, Any]) -> None:
        """Write batches by stream and have the positions accepted, both or neither. Where the last unit at hand is of these
        very positions, it is the one that is meant. Raises ReaderNotInGroup and what `Writer.write_batch` refuses batches with,
        and then nothing of what is at hand is written, now or later; StoreUnavailable and AppendUncertain, and then it
        stays at hand."""
        if outputs and not (self._pending and self._pending[-1].positions == positions):
            staged = self._outputs.stage(outputs)
            self._number += 1
            self._pending.append(_Unit(self._number, positions, staged))
        while self._pending:
            self._write(self._pending[0])
            self._pending.popleft()

    def _write(self, unit: _Unit) -> None:
        def publish(part: Part) -> None:
            if not self._outputs.publish(unit.staged, part, series=self._share.session, number=unit.number):
                raise _Landed

        try:
            self._share.commit(unit.positions, publish)
        except _Landed:
            pass  # what the group knows by now is fetched at the next meeting
        except (AppendUncertain, StoreUnavailable):
            raise
        except AnabranchError:
            self._pending.clear()
            raise

    def end(self) -> None:
        """Nothing more is written. Raises StoreUnavailable, AppendUncertain: then a row is left behind, which does no
        harm."""
        if self._number:
            self._outputs.end(self._share.session)
