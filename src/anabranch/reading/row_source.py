"""Where a reader's rows come from: the store's own files, or a broker. How they are handed out is not decided here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.log.read import SegmentRows
from anabranch.model.amounts import check_integer
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.time_kind import TimeKind
from anabranch.model.times import TimeRules, to_micros
from anabranch.reading.bounds import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What a reader is to read; see `Reader`. Raises InvalidArgument."""

    start: Place = HEAD
    end: Place | None = None
    follow: bool = False
    columns: Sequence[str] | None = None
    between: tuple[datetime | int | str, datetime | int | str] | None = None
    by: TimeKind = "append"
    batch_rows: int = limits.READ_ROWS_MAX

    def __post_init__(self) -> None:
        if self.follow and self.end is not None:
            raise InvalidArgument("a reader that follows the stream can't have an end: omit one of them")
        if check_integer("batch_rows", self.batch_rows) < 1:
            raise InvalidArgument(f"expected at least one row per batch, got {self.batch_rows}")
        if self.between is not None and not (isinstance(self.between, tuple | list) and len(self.between) == 2):
            raise InvalidArgument(f"expected between= as two times (start, end), got {self.between!r:.100}")

    @property
    def rows_max(self) -> int:
        """The most rows of a batch."""
        return min(self.batch_rows, limits.READ_ROWS_MAX)

    def between_us(self, rules: TimeRules) -> tuple[int, int] | None:
        """`between` in µs. Raises InvalidArgument."""
        if self.between is None:
            return None
        return int(to_micros(self.between[0], rules)), int(to_micros(self.between[1], rules))


class StreamDelivery(NamedTuple):
    """Rows of one segment, at least one. `before` is the position before them, in all segments. None means that it is the
    position after the previous delivery: nothing was skipped in between, and no segment was added."""

    segment: SegmentId
    rows: SegmentRows
    before: Mapping[SegmentId, int] | None

    def split(self, count: int) -> tuple[StreamDelivery, StreamDelivery | None]:
        """The first `count` rows, at least one, and the others if there are any."""
        if count >= self.rows.batch.num_rows:
            return self, None
        rows, others = self.rows.split(count)
        return self._replace(rows=rows), StreamDelivery(self.segment, others, None)


class RowSource(Protocol):
    """The rows of one stream in reading order. For one thread at a time; only `wake` and `close` may be called by others
    meanwhile."""

    @property
    def options(self) -> ReaderOptions:
        """What was asked for."""

    @property
    def stream(self) -> StreamId:
        """The stream's id."""

    @property
    def name(self) -> StreamName:
        """The stream's name when the source was opened."""

    @property
    def schema(self) -> StreamSchema:
        """The stream's schema when the source was opened."""

    @property
    def columns(self) -> pa.Schema:
        """The columns that were asked for. A delivery's batch begins with them; others may follow."""

    @property
    def start(self) -> StreamCut:
        """Where it began when it was opened."""

    @property
    def end(self) -> StreamCut | None:
        """The cut at which it ends; None if it follows the stream."""

    @property
    def positions(self) -> dict[SegmentId, int]:
        """The offset in each segment after all that was delivered or left out. The caller may change it."""

    @property
    def exhausted(self) -> bool:
        """Whether nothing can follow: all is delivered up to the end, or the stream is sealed."""

    @property
    def ignores_timeout(self) -> bool:
        """True if a read waits without a time limit, because the source can't tell whether rows are in flight."""

    def serves(self, *, as_events: bool) -> bool:
        """True if its deliveries hold the columns that events need (without `as_events`: batches); else call
        `restart`."""

    def pull(self, until: float | None, interrupted: Callable[[], bool], *, look: bool) -> StreamDelivery | None:
        """The next rows. If there may be more, waits until the time `until` of the monotonic clock (None: however long),
        or until `interrupted`; without `look`, doesn't ask whether there are more. None if there are none. After an
        error, the next call continues: no row is lost. Raises what reading raises; see `Reader`."""

    def restart(self, start: StreamCut, *, as_events: bool) -> None:
        """Continue at another place, with the columns that events or batches need."""

    def skip_truncated(self, start: StreamCut, *, as_events: bool) -> tuple[StreamCut, int]:
        """Continue at `start`, or at the head in segments where the head has passed `start`. Returns the cut at which
        it continues, and how many events were truncated. Raises StreamNotFound."""

    def wake(self) -> None:
        """Have a wait in `pull` look at `interrupted` again."""

    def close(self) -> None:
        """End a wait in `pull`, and release all resources: now, or when the `pull` under way ends. May be called
        again."""
