"""How a reader stands in its group: which segments it has, what of them was read, and how far the group has accepted that."""

from __future__ import annotations

from anabranch.errors import Truncated
from anabranch.readers.group.intake import Delivery, Intake
from anabranch.readers.group.ports import StoredPositions
from anabranch.readers.group.progress import Progress
from anabranch.readers.group.share import Share
from anabranch.runtime.interrupts import Undisturbed


class Standing:
    """Keeps three things in step: the reader's share of the group, its intake, and its progress. For one thread at a time;
    whoever owns it locks. `stored` are positions in the application's own database, asked for in its thread alone. All
    calls raise what `Share` does."""

    def __init__(self, share: Share, intake: Intake, progress: Progress, stored: StoredPositions | None) -> None:
        self._share = share
        self._intake = intake
        self._progress = progress
        self._stored = stored

    def next(self, *, silent_s_max: float) -> Delivery | None:
        """The next rows if there are any, with whatever the group wants of this reader on the way. It gives a sign of life
        by itself where the group has not heard of it for so many seconds. Raises Truncated."""
        self.put_down()
        if self._share.silent_s > silent_s_max:
            self.meet()  # its task does not get through: then this one must, or raise
        delivery = self._pull()
        if delivery is None:
            if self._intake.refresh():
                delivery = self._pull()
            if delivery is None and (self._share.changed or self._exhausted()):
                self.meet()
                delivery = self._pull()
        if delivery is not None and self._progress.mode == "at_most_once":
            self._progress.finish_ahead(delivery)
            self.meet()
        return delivery

    def put_down(self) -> None:
        """The application is done with what it had in hand, as its mode has it."""
        with Undisturbed():  # between the steps it would be neither in hand nor done with, or the rest be skipped
            rest = self._progress.put_down()
            if rest is not None:  # of a batch whose events were not all asked for
                self._intake.begin(*rest)

    def finished(self) -> bool:
        """True if the group has read everything, and nothing can follow."""
        return self._share.state.finished(self._intake.views)

    def meet(self, *, at_checkpoint: str | None = None) -> None:
        """Exchange news with the group; see `Share.meet`."""
        progress, views = self._progress, self._intake.views
        self._share.meet(progress.done_with(), views, keep=progress.kept(), at_checkpoint=at_checkpoint)
        self._adopt()

    def look_and_meet(self) -> None:
        """The same, behind a look at what was appended and changed."""
        self._intake.refresh()
        self.meet()

    def leave(self) -> None:
        """End the membership: what is done with is accepted."""
        self._share.leave(self._progress.done_with(), self._intake.views)

    def close(self) -> None:
        """Read no more."""
        self._intake.close()

    def _pull(self) -> Delivery | None:
        self._open_new()
        try:
            return self._intake.pull()
        except Truncated:
            self._share.skip_truncated(self._intake.views)
            self._adopt()
            raise

    def _exhausted(self) -> bool:
        """True if a segment of its own is read to its end, and done with: others may be waiting for that."""
        done = self._progress.done_with()
        return any(done[segment] >= self._intake.positions[segment] for segment in self._intake.exhausted())

    def _adopt(self) -> None:
        """Have the segments that are this reader's now."""
        owned, reached = self._share.owned, self._progress.position()
        gone = reached.keys() - owned.keys()
        self._intake.drop(gone)
        for segment in gone:
            self._progress.drop(segment)
        for segment, offset in owned.items():
            # The group is ahead of this reader only where what it would read was truncated.
            if segment not in reached or offset > reached[segment]:
                self._progress.begin(segment, offset)
                if self._stored is None:
                    self._intake.begin(segment, offset)

    def _open_new(self) -> None:
        """Begin the segments whose offset the application's own database knows: in its thread, which may use that."""
        if self._stored is None:
            return
        for segment, offset in self._progress.position().items():
            if segment not in self._intake.positions:
                offset = max(offset, self._stored.load(self._share.group, segment) or 0)
                self._progress.begin(segment, offset)
                self._intake.begin(segment, offset)
