"""Appends and transactions that come to nothing, or whose outcome is not known."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError, NotFound


class StreamSealed(AnabranchError):
    """The stream is sealed: it can be read, never appended to or scaled."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream '{stream}' is sealed and takes no more events")
        self.stream = stream


class AppendRefused(AnabranchError):
    """The commit decided against an append. Nothing of its atomic unit was written."""


class Fenced(AppendRefused):
    """A newer owner raised the fence above the one this append carried."""

    def __init__(self, carried: int, fence: int) -> None:
        super().__init__(f"the append carried fence {carried}, but the log demands {fence}: another writer took over")
        self.carried = carried
        self.fence = fence


class OutOfSequence(AppendRefused):
    """Sequence numbers of a writer are contiguous per log; this batch leaves a gap."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"the writer's next sequence number is {expected}, not {got}")
        self.expected = expected
        self.got = got


class WriterUnknown(AppendRefused):
    """The log has forgotten this writer's progress, so it can't tell a retry from a new batch."""

    def __init__(self, writer: str, sequence: int) -> None:
        super().__init__(f"nothing is known of writer '{writer}' that could place its sequence number {sequence}")
        self.writer = writer
        self.sequence = sequence


class ConditionFailed(AppendRefused):
    """A conditional append expected another tail."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"the append expected the segment to hold {expected} events; it holds {actual}")
        self.expected = expected
        self.actual = actual


class SegmentSealed(AppendRefused):
    """The segment was sealed by a scale or a seal. Writers re-route by themselves; a caller sees this only in `cause`."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment} is sealed")
        self.segment = segment


class BlobExpired(AppendRefused):
    """The bytes were written before the collector's horizon, so they may be gone: write them again."""

    def __init__(self, written_at: int, horizon: int) -> None:
        super().__init__(f"the blob was begun at {written_at} µs, behind the collector's horizon {horizon} µs")
        self.written_at = written_at
        self.horizon = horizon


class AppendUncertain(AnabranchError):
    """Whether the append took place is unknown. It must not be retried blindly: the writer's progress tells."""


class TransactionNotFound(NotFound):
    """There is no transaction of this id, or it ended long ago."""

    def __init__(self, ident: str) -> None:
        super().__init__(f"there is no transaction '{ident}', or it ended long ago")
        self.id = ident


class TransactionAborted(AnabranchError):
    """The transaction is over and none of its events will ever be seen."""

    def __init__(self, ident: str, reason: str | None) -> None:
        super().__init__(f"transaction '{ident}' was aborted" + ("" if reason is None else f": {reason}"))
        self.id = ident
        self.reason = reason
