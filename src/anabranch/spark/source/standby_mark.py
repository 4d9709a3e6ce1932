"""How far the hot standby of a run is: a file in the run's checkpoint folder that the standby writes and the run reads. A run
waits a little for a standby that is behind, for only one that is close takes over at once.

Both are on one machine, or see one folder. There is none for checkpoints in a bucket."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["FILE", "AwaitedStandby", "write_mark"]

FILE: Final = "standby"
_BEHIND_MAX: Final = 2  # batches: one runs here, and one there
_WAIT_S_MAX: Final = 2.0
_SILENT_S: Final = 10.0
_POLL_S: Final = 0.01


def write_mark(checkpoint: str, batch: int) -> None:
    """Note that the standby of the run with this checkpoint is done with a batch."""
    file = Path(checkpoint, FILE)
    beside = file.with_name(f".{FILE}")  # hidden, so that it isn't copied with the checkpoint
    with suppress(FileNotFoundError):  # the run starts over, and its checkpoint was removed
        beside.write_text(str(batch), encoding="ascii")
        beside.replace(file)


class AwaitedStandby:
    """Has one source of a run wait for the standby, if there is one."""

    def __init__(self, checkpoint: str) -> None:
        self._folder = Path(checkpoint)
        self._returned_s = time.monotonic()
        self._mark: str | None = None
        self._changed_s = -float("inf")

    def let_catch_up(self) -> None:
        """Wait while the standby is more than two batches behind, for as long as the batch before took and at most 2 s:
        so a run loses at most half of its speed. Does not wait for one that has not moved for 10 s."""
        now_s = time.monotonic()
        until_s = now_s + min(now_s - self._returned_s, _WAIT_S_MAX)
        while self._is_behind() and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        self._returned_s = time.monotonic()

    def _is_behind(self) -> bool:
        try:
            mark = (self._folder / FILE).read_text(encoding="ascii")
        except FileNotFoundError:
            return False
        now_s = time.monotonic()
        if mark != self._mark:
            self._mark, self._changed_s = mark, now_s
        if now_s - self._changed_s > _SILENT_S:
            return False
        planned = max(
            (int(each.name) for each in (self._folder / "offsets").glob("*") if each.name.isdigit()), default=0
        )
        return planned - int(mark) > _BEHIND_MAX
