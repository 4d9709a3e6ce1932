"""What becomes of the results of a micro-batch in the run of a hot standby.

As long as the run follows, the leader publishes them. The standby computes them nevertheless, because that keeps its
state equal to the leader's. It keeps them in Spark's memory until the leader is done with the batch: if the leader ends
before that, this run publishes the results under the same number without computing them again. For batches that the
leader has already finished, no results are kept, so a standby that is behind needs less time per batch than its
leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import Conflict
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.pipelines.publish import BatchHandler, compute
from anabranch.spark.source.checkpoint import PlannedBatch
from anabranch.spark.source.following import StandbyRole, poll_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FollowedResults", "LeaderBatches"]


class LeaderBatches:
    """Which batches of one statement the leader is done with. For one thread."""

    def __init__(self, pipeline: str, leader: CheckpointFolder, own: CheckpointFolder, role: StandbyRole) -> None:
        self._pipeline = pipeline
        self._leader = leader
        self._own = own
        self._role = role
        self._poll_s = poll_s(leader.text)

    def is_done(self, batch: int) -> bool:
        """True if the leader has published the batch. Raises Conflict if this run has come to another watermark."""
        self._refuse_other_plan(batch)
        return self._leader.read(f"commits/{batch}") is not None

    def await_done(self, batch: int) -> bool:
        """True once the leader has published the batch; False if this run is to publish it. Raises Conflict if it has
        ended."""
        while (role := self._role.now) == "follows":
            if self._leader.read(f"commits/{batch}") is not None:
                return True
            self._role.wait("follows", self._poll_s)
        if role == "ended":
            raise Conflict(f"the standby of '{self._pipeline}' has ended")
        return self.is_done(batch)

    def _refuse_other_plan(self, batch: int) -> None:
        """Raise Conflict if this run has planned the batch differently from the leader. The state after a batch depends
        on its watermark, and with several sources Spark may plan another watermark after a restart than before it."""
        name = f"offsets/{batch}"
        leader, own = self._leader.read(name), self._own.read(name)
        if leader is not None and own is not None and PlannedBatch.parse(leader) != PlannedBatch.parse(own):
            raise Conflict(f"the standby of '{self._pipeline}' has another batch {batch} than the leader")


class FollowedResults:
    """Called with the results of each micro-batch; `publish` publishes those of a batch."""

    def __init__(self, leader: LeaderBatches, role: StandbyRole, publish: BatchHandler) -> None:
        self._leader = leader
        self._role = role
        self._publish = publish

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Compute the results, and publish them if the leader does not."""
        if self._role.now == "plans":
            self._publish(frame, batch)
            return
        if self._leader.is_done(batch):
            compute(frame)
            return
        if self._role.now == "leads":  # the leader publishes nothing any more
            self._publish(frame, batch)
            return
        kept = frame.persist()
        try:
            compute(kept)
            if not self._leader.await_done(batch):
                self._publish(kept, batch)
        finally:
            kept.unpersist()
