"""The end of a log, as read under its lock by a transaction whose subject is a `StreamTail`.

A lone append of that writer, without a request or a blob, is decided in Python by `core.decide`, which is also the commit
function's oracle in tests. That takes less time than calling the commit function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.catalog import rows
from anabranch.core.decide import advance_log, advance_progress, decide
from anabranch.model.append import Appended, LogState, Progress, Unit, Verdict
from anabranch.model.ids import Micros, WriterId
from anabranch.model.stream import Extent


class LogEnd(NamedTuple):
    """A log, its last extent, and a writer's progress in it."""

    log: LogState
    last: Extent | None
    writer: WriterId
    progress: Progress | None

    def can_decide(self, unit: Unit) -> bool:
        """True if the verdict on the unit depends only on these values."""
        if unit.request is not None or unit.producer is not None or len(unit.parts) != 1:
            return False
        (part,) = unit.parts
        writer = None if part.sequence is None else part.sequence.writer
        return (part.log, writer, part.blob) == (self.log.id, self.writer, None)

    def append(self, unit: Unit, *, now: Micros) -> tuple[Verdict, tuple[Any, ...] | None]:
        """Decide a unit for which `can_decide` is true. Returns the verdict, and the parameters of the statement
        `append_part` if it is to be written."""
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
