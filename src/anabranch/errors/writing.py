"""Errors of appends and transactions that failed, or whose outcome is unknown."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError, NotFound


class StreamSealed(AnabranchError):
    """The stream is sealed: it can be read, but not appended to or scaled."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream '{stream}' is sealed: no more events can be appended")
        self.stream = stream


class AppendRefused(AnabranchError):
    """The commit refused an append. Nothing of its atomic unit was written."""


class Fenced(AppendRefused):
    """A newer owner raised the fence above the one that this append carried."""

    def __init__(self, carried: int, fence: int) -> None:
        super().__init__(
            f"another writer took over: its fence is {fence}, and this one has {carried}; end this one, or open it again to "
            "take over in turn"
        )
        self.carried = carried
        self.fence = fence


class OutOfSequence(AppendRefused):
    """A writer's sequence numbers are contiguous per log; this batch leaves a gap."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"the writer's next sequence number is {expected}, not {actual}")
        self.expected = expected
        self.actual = actual


class WriterUnknown(AppendRefused):
    """The log no longer has this writer's progress, so it can't tell a retry from a new batch."""

    def __init__(self, writer: str, sequence: int) -> None:
        super().__init__(
            f"the log has no progress of writer '{writer}', so it can't tell whether sequence number {sequence} is new"
        )
        self.writer = writer
        self.sequence = sequence


class ConditionFailed(AppendRefused):
    """A conditional append expected a different tail."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"the append expected the segment to hold {expected} events; it holds {actual}")
        self.expected = expected
        self.actual = actual


class SegmentSealed(AppendRefused):
    """The segment was sealed by a scale or a seal. Writers re-route on their own; a caller sees this only as a
    `cause`."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment} is sealed")
        self.segment = segment


class BlobExpired(AppendRefused):
    """The bytes were written before the collector's horizon, so they may be gone: write them again."""

    def __init__(self, written_at: int, horizon: int) -> None:
        super().__init__(f"the blob was started at {written_at} µs, before the collector's horizon {horizon} µs")
        self.written_at = written_at
        self.horizon = horizon


class AppendUncertain(AnabranchError):
    """Whether the append took place is unknown. Don't retry it blindly: read the writer's progress."""


class TransactionNotFound(NotFound):
    """No transaction has this id, or it ended long ago."""

    def __init__(self, transaction: str) -> None:
        super().__init__(f"transaction '{transaction}' not found: it never existed, or it ended long ago")
        self.id = transaction


class TransactionAborted(AnabranchError):
    """The transaction was aborted, and none of its events will ever become visible."""

    def __init__(self, transaction: str, reason: str | None) -> None:
        super().__init__(f"transaction '{transaction}' was aborted" + ("" if reason is None else f": {reason}"))
        self.id = transaction
        self.reason = reason
