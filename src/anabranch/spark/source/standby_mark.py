"""How far the hot standby of a run is: a file in the run's checkpoint folder that the standby writes and the run reads. A run
waits a little for a standby that is behind, for only one that is close takes over at once."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.source.checkpoint import last_planned

__all__ = ["FILE", "AwaitedStandby", "write_mark"]

FILE: Final = "standby"
_BEHIND_MAX: Final = 1  # batches: the standby runs one while this run plans the next
_REMOTE_BEHIND_MAX: Final = 2  # in a bucket, where it takes a while until either sees what the other wrote
_WAIT_S_MAX: Final = 2.0
_SILENT_S: Final = 10.0
_ABSENT_POLLS: Final = 20


def write_mark(checkpoint: CheckpointFolder, batch: int) -> None:
    """Note that the standby of the run with this checkpoint is done with a batch."""
    # If it can't be written, the run only does not wait: it may start over, and its checkpoint was removed.
    with suppress(FileNotFoundError, AnabranchError):
        checkpoint.write(FILE, f"{batch:020}")


class AwaitedStandby:
    """Has one source of a run wait for the standby, if there is one."""

    def __init__(self, checkpoint: CheckpointFolder, poll_s: float) -> None:
        """`checkpoint` is that of the run, into which it looks every `poll_s` while it waits."""
        self._behind_max = _REMOTE_BEHIND_MAX if "://" in checkpoint.text else _BEHIND_MAX
        self._checkpoint = checkpoint
        self._poll_s = poll_s
        self._returned_s = time.monotonic()
        self._mark: str | None = None
        self._changed_s = -float("inf")
        self._look_s = -float("inf")  # not before then, where there was no standby

    def let_catch_up(self) -> None:
        """Wait while the standby is more than one batch behind (in a bucket: two), for as long as the batch before took
        and at most 2 s: so a run loses at most half of its speed. Does not wait for one that has not moved for 10 s."""
        now_s = time.monotonic()
        until_s = now_s + min(now_s - self._returned_s, _WAIT_S_MAX)
        while self._is_behind() and time.monotonic() < until_s:
            time.sleep(self._poll_s)
        self._returned_s = time.monotonic()

    def _is_behind(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._look_s:
            return False
        with suppress(AnabranchError):  # the bucket does not answer: if that lasts, Spark says so
            return self._is_far(now_s)
        return False

    def _is_far(self, now_s: float) -> bool:
        mark = self._checkpoint.read(FILE)
        if mark is None:
            self._look_s = now_s + _ABSENT_POLLS * self._poll_s
            return False
        if mark != self._mark:
            self._mark, self._changed_s = mark, now_s
        if now_s - self._changed_s > _SILENT_S:
            return False
        return last_planned(self._checkpoint) - int(mark) > self._behind_max
