"""Decides an append, under the log's lock. Adapters that decide in the database are tested against this function."""

from __future__ import annotations

from anabranch import limits
from anabranch.model.append import Appended, Batch, Batches, LogState, Part, Progress, Refusal, Refused, Verdict
from anabranch.model.ids import Micros


def decide(
    part: Part, log: LogState | None, progress: Progress | None, *, now: Micros, expired: Micros | None = None
) -> Verdict:
    """Accept or refuse a part. The checks, in order: duplicate, fence, expired, seal, gap, condition. So a retry finds
    its first result even if the log was sealed or the fence raised since. A part without a sequence can't be a
    duplicate. `expired` is the collector's horizon if the part's blob was begun before it, else None."""
    if log is None:
        return Refused(Refusal.GONE)
    if part.sequence is not None:
        if (first := _duplicate_of(part, progress)) is not None:
            return first
        if progress is not None and part.sequence.fence < progress.fence:
            return Refused(Refusal.FENCED, progress.fence)
    if part.fence is not None and part.fence < log.fence:
        return Refused(Refusal.FENCED, log.fence)
    if expired is not None:
        return Refused(Refusal.EXPIRED, expired)
    if log.sealed:
        return Refused(Refusal.SEALED, log.length)
    if part.sequence is not None:
        expected = 0 if progress is None else progress.next
        if part.sequence.first != expected:
            # A number below the next one that is not among the kept batches: its result is unknown.
            sequence_ahead = progress is not None and part.sequence.first > expected
            return Refused(Refusal.GAP if sequence_ahead else Refusal.UNKNOWN_WRITER, expected)
    if part.expected is not None and part.expected != log.length:
        return Refused(Refusal.CONDITION, log.length)
    return Appended(log.length, Micros(max(now, log.appended_at)))


def _duplicate_of(part: Part, progress: Progress | None) -> Appended | None:
    assert part.sequence is not None
    if progress is None or part.sequence.first >= progress.next:
        return None
    # Another owner of the writer's name may use the same numbers: only a batch with this fence is the same batch.
    batch_key = (part.sequence.first, part.count, part.sequence.fence)
    for batch in progress.recent:
        if (batch.first, batch.events, batch.fence) == batch_key:
            return Appended(batch.start, Micros(batch.appended_at), duplicate=True)
    return None


def advance_log(log: LogState, part: Part, appended: Appended) -> LogState:
    """The log's state after an accepted part."""
    highs = [high for high in (log.event_high, part.bounds.high) if high is not None]
    # No `replace`, which takes three times as long: this runs for every log of every commit.
    return LogState(
        id=log.id,
        stream=log.stream,
        length=appended.start + part.count,
        sealed=log.sealed,
        fence=log.fence,
        low_water=log.low_water,
        size=log.size + part.size,
        appended_at=appended.appended_at,
        event_high=max(highs) if highs else None,
    )


def advance_progress(progress: Progress | None, part: Part, appended: Appended) -> Progress:
    """The writer's progress after an accepted part that carried a sequence."""
    assert part.sequence is not None
    before = progress or Progress()
    batch = Batch(part.sequence.first, part.count, appended.start, appended.appended_at, part.sequence.fence)
    return Progress(
        next=part.sequence.first + part.count,
        fence=max(before.fence, part.sequence.fence),
        recent=Batches.of(before.recent).followed_by(batch, kept=limits.WRITER_BATCHES_KEPT),
    )
