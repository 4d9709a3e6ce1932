"""A run that follows another: the hot standby of a deployed query (`anabranch.spark.pipelines.standby`).

It runs the same statements with a checkpoint of its own, takes the ends of its micro-batches from the offset log of the
leader's checkpoint, and publishes nothing as long as the leader does. Once its run holds the pipeline, it publishes the
batches that the leader planned and did not publish, under the same numbers. Once the pipeline's row names its checkpoint,
it plans its own batches.

The source asks for the end of a batch, and the sink whether the leader has published it. Both are in processes of their own
on the driver's machine, and learn from the catalog that their run leads.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from anabranch.catalog.state.pipeline import PIPELINE, StoredPipeline
from anabranch.core.json_text import parse_json
from anabranch.errors import Conflict, InvalidArgument
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.source.offsets import SourceOffset
from anabranch.store import Store

__all__ = ["FollowedBatches", "FollowedRun"]

_POLL_S: Final = 0.03
_REMOTE_POLL_S: Final = 0.3  # of a checkpoint in a bucket, where each look is a request
_REPEATS_MAX: Final = 300  # of an answer after which Spark plans no batch; it asks again after 10 ms
_BEHIND_CHECK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """The option `follow` of source and sink. `leader` and `own` are the checkpoint folders of the statement with this
    `target`, `stored` is the own one as the pipeline's row would name it, and `token` that of the run. It follows as long
    as the file `alive` exists. `pause_us` is the time between micro-batches once it plans them."""

    leader: str
    own: str
    stored: str
    pipeline: str
    token: str
    target: str
    alive: str
    pause_us: int | None

    def to_option(self) -> str:
        """The option's value."""
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> FollowedRun:
        """The inverse of `to_option`. Raises InvalidArgument."""
        try:
            return cls(**parse_json(text))
        except (ValueError, TypeError) as exc:
            raise InvalidArgument(f"option 'follow' is JSON of a run that is followed: {exc}") from exc


class FollowedBatches:
    """Follows the batches of one statement. For one thread."""

    def __init__(self, run: FollowedRun, store: Store) -> None:
        self._run = run
        self._store = store
        self._leader = checkpoint_folder(run.leader, store.runtime)
        self._own = checkpoint_folder(run.own, store.runtime)
        self._poll_s = _REMOTE_POLL_S if "://" in run.leader else _POLL_S
        self._next: int | None = None  # the number of the batch that Spark plans next
        self._repeats = 0
        self._planned_s = -float("inf")  # when the last own batch was planned

    def end_of_batch(self, start: SourceOffset) -> SourceOffset | None:
        """Where the leader's next batch ends in the stream of `start`; waits until it is planned. None once this run plans
        its own. Raises Conflict if it can't follow any more."""
        number, waited_s = self._number(), 0.0
        while not self._plans_itself():
            text = self._leader.read(f"offsets/{number}")
            if text is not None:
                return self._counted(number, start, _offset_in(text, start))
            if waited_s >= _BEHIND_CHECK_S:
                self._refuse_behind(number)
                waited_s = 0.0
            self._wait()
            waited_s += self._poll_s
        return None

    def pause_s(self) -> float:
        """How long it is until the next own batch is due."""
        every_s = (self._run.pause_us or 0) / 1e6
        return max(self._planned_s + every_s - time.monotonic(), 0.0)

    def planned(self) -> None:
        """To be called for each own batch."""
        self._planned_s = time.monotonic()

    def is_published(self, batch: int) -> bool:
        """True once the leader is done with a batch; False if this run is to publish it. Raises Conflict if it can't
        follow any more, or has come to another watermark than the leader."""
        if self._plans_itself():
            return False
        self._check(batch)
        while not self._leads():
            if self._leader.read(f"commits/{batch}") is not None:
                return True
            self._wait()
        return False

    def _number(self) -> int:
        number = self._next
        if number is None:
            number = max((int(name) for name in self._own.names("offsets") if name.isdigit()), default=-1) + 1
        while self._own.read(f"offsets/{number}") is not None:
            number += 1
        if number != self._next:
            self._next, self._repeats = number, 0
        return number

    def _counted(self, number: int, start: SourceOffset, end: SourceOffset) -> SourceOffset:
        self._repeats += 1
        if end == start and self._repeats > _REPEATS_MAX:
            raise Conflict(f"the standby of '{self._run.pipeline}' does not come to the leader's batch {number}")
        return end

    def _refuse_behind(self, number: int) -> None:
        planned = [int(name) for name in self._leader.names("offsets") if name.isdigit()]
        if planned and max(planned) > number and self._leader.read(f"offsets/{number}") is None:
            raise Conflict(f"the standby of '{self._run.pipeline}' is behind what the leader keeps: batch {number}")

    def _check(self, batch: int) -> None:
        """The state after a batch depends on its watermark. With several sources Spark may come to another one after a
        restart than before."""
        name = f"offsets/{batch}"
        leader, own = self._leader.read(name), self._own.read(name)
        if leader is not None and own is not None and _essence(leader) != _essence(own):
            raise Conflict(f"the standby of '{self._run.pipeline}' has another batch {batch} than the leader")

    def _wait(self) -> None:
        if not Path(self._run.alive).exists():
            raise Conflict(f"the standby of '{self._run.pipeline}' has ended")
        time.sleep(self._poll_s)

    def _row(self) -> StoredPipeline | None:
        with self._store.catalog.reading() as txn:
            return txn.state(PIPELINE, self._run.pipeline)

    def _leads(self, row: StoredPipeline | None = None) -> bool:
        row = row or self._row()
        return row is not None and row.holder is not None and row.holder.token == self._run.token

    def _plans_itself(self) -> bool:
        row = self._row()
        if row is None or not self._leads(row):
            return False
        return any(each.target == self._run.target and each.checkpoint == self._run.stored for each in row.outputs)


def _offset_in(text: str, start: SourceOffset) -> SourceOffset:
    lines = {line: SourceOffset.from_json(parse_json(line)) for line in text.splitlines()[2:] if line.startswith("{")}
    found = [each for each in lines.values() if each.cut.stream == start.cut.stream]
    if len(found) != 1:  # two sources of one stream, which Spark does not tell apart here
        raise Conflict(f"the leader's batch ends {len(found)} times in {start.stream}, so it can't be followed")
    return found[0]


def _essence(text: str) -> tuple[Any, ...]:
    """What a batch's results depend on: its watermark, and where it ends in each source."""
    _, settings, *lines = text.splitlines()
    offsets = [parse_json(each) for each in lines if each.startswith("{")]
    # Without the name: a stream may have been renamed, and its cuts have its id.
    return parse_json(settings)["batchWatermarkMs"], *({**each, "stream": None} for each in offsets)
