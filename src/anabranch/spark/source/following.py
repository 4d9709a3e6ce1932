"""A run that follows another: the hot standby of a deployed query (`anabranch.spark.pipelines.standby`).

It runs the same statements with a checkpoint of its own, and takes the ends of its micro-batches from the offset log of the
leader's checkpoint. Once its driver sets its role to `plans` (`StandbyRole`), it plans its own batches.
What it publishes is decided in `anabranch.spark.pipelines.followed_results`.

It notes its progress in the leader's checkpoint. The leader waits a little for a standby that is behind, because only a
standby that is close takes over at once.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from anabranch.errors import AnabranchError, Conflict
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_folder import CheckpointFolder, checkpoint_folder
from anabranch.spark.source.checkpoint import PlannedBatch, last_planned
from anabranch.spark.source.offsets import SourceOffset

__all__ = [
    "MARK_FILE",
    "AwaitedStandby",
    "FollowedBatches",
    "FollowedRun",
    "Role",
    "StandbyRole",
    "poll_s",
    "read_role",
    "write_mark",
]


Role: TypeAlias = Literal["follows", "leads", "plans", "ended"]
"""`follows`: it repeats the leader's batches. `leads`: it holds the pipeline, and finishes what the leader planned.
`plans`: it plans batches of its own. `ended`: it has ended."""

_POLL_S: Final = 0.01  # two files are looked for, which takes some 30 µs
_REMOTE_POLL_S: Final = 0.3  # of a checkpoint in a bucket, where each look is a request
_REPEATS_MAX: Final = 300  # answers without events: Spark plans no batch then, and asks again after 10 ms
_BEHIND_CHECK_S: Final = 2.0
MARK_FILE: Final = "standby"
_BEHIND_MAX: Final = 1  # batches: the standby runs one while this run plans the next
_REMOTE_BEHIND_MAX: Final = 2  # in a bucket, where it takes a while until either sees what the other wrote
_WAIT_S_MAX: Final = 2.0
_SILENT_S: Final = 10.0
_ABSENT_POLLS: Final = 20


class StandbyRole:
    """The role of a run, which begins as one that follows. Thread-safe. Belongs to the driver."""

    def __init__(self, file: Path) -> None:
        """`file` is where its sources read the role; its folder has to exist."""
        self.file = file
        self._changed = threading.Condition()
        self._role: Role = "follows"
        self._write()

    @property
    def now(self) -> Role:
        """The role."""
        return self._role

    def become(self, role: Role) -> None:
        """Change the role, and wake the threads in `wait`."""
        with self._changed:
            self._role = role
            self._write()
            self._changed.notify_all()

    def wait(self, role: Role, timeout_s: float) -> None:
        """Return once the role is no longer this one, or after `timeout_s`."""
        with self._changed:
            if self._role == role:
                self._changed.wait(timeout_s)

    def _write(self) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(self._role, encoding="ascii")
        beside.replace(self.file)


def read_role(file: str) -> Role:
    """The role in a file; `ended` without a file: the driver is gone, or has removed the file."""
    try:
        with open(file, encoding="ascii") as opened:
            found = opened.read()
    except FileNotFoundError:
        return "ended"
    return found  # type: ignore[return-value]  # written above


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """The option `follow` of a source. `leader` and `own` are the checkpoint folders of the statement. `role` is the file
    with the role of the run of this `pipeline`. `pause_us` is the time between micro-batches once it plans them."""

    leader: str
    own: str
    pipeline: str
    role: str
    pause_us: int | None


def poll_s(checkpoint: str) -> float:
    """The time between two looks into a checkpoint."""
    return _REMOTE_POLL_S if "://" in checkpoint else _POLL_S


class FollowedBatches:
    """The ends of the batches of one source. For one thread."""

    def __init__(self, run: FollowedRun, runtime: Runtime) -> None:
        self._run = run
        self._leader = checkpoint_folder(run.leader, runtime)
        self._own = checkpoint_folder(run.own, runtime)
        self._poll_s = poll_s(run.leader)
        self._next: int | None = None  # the number of the batch that Spark plans next
        self._repeats = 0
        self._planned_s = -float("inf")  # when the last own batch was planned

    def end_of_batch(self, start: SourceOffset) -> SourceOffset | None:
        """Where the leader's next batch ends in the stream of `start`; waits until it is planned. None once this run plans
        its own. Raises Conflict if it can't follow any more."""
        number, waited_s = self._number(), 0.0
        while (role := read_role(self._run.role)) != "plans":
            text = self._leader.read(f"offsets/{number}")
            if text is not None:
                return self._checked_end(number, start, _offset_in(text, start))
            if role == "ended":
                raise Conflict(f"the standby of '{self._run.pipeline}' has ended")
            if waited_s >= _BEHIND_CHECK_S:
                self._refuse_behind(number)
                waited_s = 0.0
            time.sleep(self._poll_s)
            waited_s += self._poll_s
        return None

    def pause_s(self) -> float:
        """How long it is until the next own batch is due."""
        every_s = (self._run.pause_us or 0) / 1e6
        return max(self._planned_s + every_s - time.monotonic(), 0.0)

    def planned(self) -> None:
        """To be called for each own batch."""
        self._planned_s = time.monotonic()

    def _number(self) -> int:
        number = self._next
        if number is None:
            number = last_planned(self._own) + 1
        while self._own.read(f"offsets/{number}") is not None:
            number += 1
        if number != self._next:
            self._next, self._repeats = number, 0
            # Once this run has taken over, the leader's checkpoint is removed: nothing is written there any more.
            if read_role(self._run.role) == "follows":
                write_mark(self._leader, number - 1)
        return number

    def _checked_end(self, number: int, start: SourceOffset, end: SourceOffset) -> SourceOffset:
        self._repeats += 1
        if end == start and self._repeats > _REPEATS_MAX:
            raise Conflict(f"the standby of '{self._run.pipeline}' can't reproduce the leader's batch {number}")
        return end

    def _refuse_behind(self, number: int) -> None:
        if last_planned(self._leader) > number and self._leader.read(f"offsets/{number}") is None:
            raise Conflict(
                f"the standby of '{self._run.pipeline}' is too far behind: the leader no longer has batch {number}"
            )


def _offset_in(text: str, start: SourceOffset) -> SourceOffset:
    found = {each for each in PlannedBatch.parse(text).ends if each.cut.stream == start.cut.stream}
    if len(found) != 1:  # two sources of one stream, which Spark does not tell apart here
        raise Conflict(
            f"expected one end of stream {start.stream} in the leader's batch, found {len(found)}: a standby can't follow it"
        )
    return found.pop()


def write_mark(checkpoint: CheckpointFolder, batch: int) -> None:
    """Note that the standby of the run with this checkpoint is done with a batch."""
    # Without the mark the leader only does not wait. It can't be written once the leader's checkpoint is removed.
    with suppress(FileNotFoundError, AnabranchError):
        checkpoint.write(MARK_FILE, f"{batch:020}")


class AwaitedStandby:
    """Makes one source of a run wait for the run's standby, if there is one."""

    def __init__(self, checkpoint: CheckpointFolder, poll_s: float) -> None:
        """`checkpoint` is that of the run, into which it looks every `poll_s` while it waits."""
        self._behind_max = _REMOTE_BEHIND_MAX if "://" in checkpoint.text else _BEHIND_MAX
        self._checkpoint = checkpoint
        self._poll_s = poll_s
        self._returned_s = time.monotonic()
        self._mark: str | None = None
        self._changed_s = -float("inf")
        self._look_s = -float("inf")  # after there was no standby: when to look for one again

    def let_catch_up(self) -> None:
        """Wait while the standby is more than one batch behind (in a bucket: two), for as long as the batch before took
        and at most 2 s: so a run loses at most half of its speed. Does not wait for a standby without progress for 10
        s."""
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
            return self._is_mark_behind(now_s)
        return False

    def _is_mark_behind(self, now_s: float) -> bool:
        mark = self._checkpoint.read(MARK_FILE)
        if mark is None:
            self._look_s = now_s + _ABSENT_POLLS * self._poll_s
            return False
        if mark != self._mark:
            self._mark, self._changed_s = mark, now_s
        if now_s - self._changed_s > _SILENT_S:
            return False
        return last_planned(self._checkpoint) - int(mark) > self._behind_max
