"""The end of a log, read behind its lock by a transaction that is on it. What one writer appends there is decided here, by the
function that is the commit function's oracle: with no other part, request or blob to look at, that is less work than calling it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.catalog import rows
from anabranch.core.decide import advance_log, advance_progress, decide
from anabranch.model.append import Appended, LogState, Progress, Unit, Verdict
from anabranch.model.ids import Micros, WriterId
from anabranch.model.stream import Extent


class LogEnd(NamedTuple):
    """A log, its last extent, and what it remembers of a writer."""

    log: LogState
    last: Extent | None
    writer: WriterId
    progress: Progress | None

    def takes(self, unit: Unit) -> bool:
        """True if all that decides about the unit is known here."""
        if unit.request is not None or len(unit.parts) != 1:
            return False
        (part,) = unit.parts
        writer = None if part.sequence is None else part.sequence.writer
        return (part.log, writer, part.blob) == (self.log.id, self.writer, None)

    def append(self, unit: Unit, *, now: Micros) -> tuple[Verdict, tuple[Any, ...] | None]:
        """The verdict on what it `takes`, and the values of `append_part`, if that is to be written."""
        (part,) = unit.parts
        verdict = decide(part, self.log, self.progress, now=now)
        if not isinstance(verdict, Appended) or verdict.duplicate:
            return verdict, None
        log, progress = advance_log(self.log, part, verdict), advance_progress(self.progress, part, verdict)
        recent = "{" + ",".join([str(number) for batch in progress.recent for number in batch]) + "}"
        extent = rows.appended_values(part, verdict, log, None)
        return verdict, (
            *extent,
            *rows.log_values(log),
            log.id,
            self.writer,
            progress.next,
            progress.fence,
            recent,
            now,
        )
