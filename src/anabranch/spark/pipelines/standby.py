"""The hot standby of a deployed query: runs its statements beside the run that leads, and takes over from it.

Each statement has a checkpoint of its own: a copy of the leader's, less the last batch. From there it repeats the leader's
batches, which `anabranch.spark.source.following` reads from the leader's offset log, so that its state is the leader's,
and publishes nothing. Spark's id of the query is that of the leader, and so is the series of its batches.

It takes over in three steps. The run takes the pipeline's row: from here on the leader publishes nothing more. It finishes
all batches that the leader planned, and publishes those that the leader did not. Then the row names its checkpoints, and
it plans batches of its own. If the run is killed in between, the next run continues from the checkpoints that the row
names. So every batch that is published was planned in the checkpoints that the row names.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.errors import Conflict, InvalidArgument, PipelineFailed
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import PIPELINE_STARTED
from anabranch.spark.checkpoint_folder import CheckpointFolder, beside
from anabranch.spark.explain import explain
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.checkpoint_places import drop_abandoned, output_checkpoint, standby_number
from anabranch.spark.pipelines.followed_results import FollowedResults, LeaderBatches
from anabranch.spark.pipelines.heartbeat import Heartbeat
from anabranch.spark.pipelines.plan import Step, plan, query_words
from anabranch.spark.pipelines.prepare import PreparedQuery, prepare_standby
from anabranch.spark.pipelines.record import PipelineOutput, PipelineRow
from anabranch.spark.pipelines.run import DEPLOYED
from anabranch.spark.pipelines.running import Pipeline, stop_queries
from anabranch.spark.pipelines.start import start
from anabranch.spark.source.checkpoint import last_committed, last_planned
from anabranch.spark.source.following import MARK_FILE, FollowedRun, StandbyRole
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Standby", "StandbyLag", "copy_checkpoint", "refuse_unfollowable"]


_POLL_S: Final = 0.01
_LOOK_S: Final = 0.25
_REMOTE_LOOK_S: Final = 1.0  # each look at checkpoints in a bucket lists two of their folders a statement
# A file of a state store, with the version that it holds. Batch n turns version n into version n + 1.
_VERSION: Final = re.compile(r"(?:^|/)state/.*/(\d+)(?:_[^/.]+)*\.(?:changelog|zip|delta|snapshot)[^/]*$")
_NUMBER: Final = re.compile(r"(offsets|commits)/(\d+)$")
_VARYING: Final = frozenset(
    [
        "current_timestamp",
        "now",
        "localtimestamp",
        "current_date",
        "curdate",
        "rand",
        "random",
        "randn",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "randstr",
        "uniform",
    ]
)

_BATCHES: Final = 2  # one runs in the standby, and one in the leader
_READY_S: Final = 5.0  # lag up to which it becomes ready: the start of a run in a spare driver on an idle machine
_LOST_S: Final = 15.0  # lag up to which it stays ready


def refuse_unfollowable(steps: Sequence[Step]) -> None:
    """Raise InvalidArgument if a statement's results may differ between two runs over the same events."""
    for step in steps:
        statement = step.statement
        if statement.tables:
            names = ", ".join(map(str, statement.tables.values()))
            raise InvalidArgument(
                f"the statement for {step.target} reads {names} as a table, which changes between two reads"
            )
        if statement.functions:
            raise InvalidArgument(
                f"the statement for {step.target} calls {statement.functions[0].name}, whose results might differ between two runs"
            )
        words = {text.lower() for _, text in query_words(statement)}
        if found := sorted(words & _VARYING):
            raise InvalidArgument(
                f"the statement for {step.target} uses {found[0]}, whose value differs from run to run"
            )


class Standby:
    """Follows the run of a deployed query that is in another process. Call `start`, then `take_over` or `stop`."""

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        name: str,
        text: str,
        *,
        parameters: Mapping[str, str],
        trigger_us: int | None,
        wanted: Callable[[], bool],
    ) -> None:
        """`text`, `parameters` and `trigger_us` as for `run`. `start` ends early once it is no longer `wanted`. Raises
        InvalidArgument if the query can't be followed."""
        self._store = store
        self._spark = spark
        self._name = name
        self._text = text
        self._trigger_us = trigger_us
        self._wanted = wanted
        self.look_s = _LOOK_S
        self._steps = plan(text, parameters)
        refuse_unfollowable(self._steps)
        self._token = f"{DEPLOYED}standby:{token(store.runtime.ids)}"
        self._role = StandbyRole(Path(tempfile.mkdtemp(prefix="anabranch-standby-")) / "role")
        self._row: PipelineRow | None = None
        self._outputs: dict[str, PipelineOutput] = {}
        self._prepared: dict[str, PreparedQuery] = {}
        self._queries: dict[str, StreamingQuery] = {}
        self._lags: dict[str, StandbyLag] = {}

    def start(self) -> None:
        """Copy the leader's checkpoints, as soon as it has planned a batch of each statement, and follow it from there.
        Raises Conflict if it is stopped meanwhile, or the leader's pipeline is not the one that is deployed."""
        self._row = row = self._followed_row()
        number = standby_number(row.generation, self._store.runtime.clock.now())
        # Only the latest standby that a host was given for the query can take over.
        drop_abandoned(self._store, row, before=number)
        leaders = {each.target: output_checkpoint(self._store, each.checkpoint) for each in row.outputs}
        for step in self._steps:
            output = next(each for each in row.outputs if each.target == step.target)
            leader = leaders[step.target]
            own = replace(output, checkpoint=beside(output.checkpoint, number))
            self._outputs[step.target] = own
            repeated = self._await_planned(leader)
            self._lags[step.target] = StandbyLag(repeated)
            copy_checkpoint(leader, number, repeated)
            checkpoint = output_checkpoint(self._store, own.checkpoint)
            self.look_s = _REMOTE_LOOK_S if "://" in checkpoint.text else _LOOK_S
            pause_us = step.statement.options.trigger_us
            follow = FollowedRun(
                leader=leader.text,
                own=checkpoint.text,
                pipeline=self._name,
                role=str(self._role.file),
                pause_us=self._trigger_us if pause_us is None else pause_us,
            )
            made = self._prepared[step.target] = prepare_standby(self._spark, self._store, step, own, follow)
            batches = LeaderBatches(self._name, leader, checkpoint, self._role)
            self._queries[step.target] = start(
                self._spark,
                self._store,
                step,
                made,
                name=f"{self._name}/{step.target}",
                once=False,
                trigger_us=None,
                run=(self._name, self._token),
                follow=partial(FollowedResults, batches, self._role),
            )

    def failure(self) -> str | None:
        """Why the standby has stopped following; None while it follows."""
        for target, query in self._queries.items():
            if not query.isActive:
                why = query.exception()
                return f"{target}: {'it has ended' if why is None else explain(why)}"
        return None

    def is_ready(self) -> bool:
        """True if it could take over now: it has run a batch of each statement, and is close to what the leader has
        planned. To be called every `look_s` seconds."""
        assert self._row is not None, "it was started"
        now_s = self._store.runtime.clock.monotonic()
        near = []
        for output in self._row.outputs:
            planned = last_planned(output_checkpoint(self._store, output.checkpoint))
            done = last_committed(self._prepared[output.target].checkpoint)
            near.append(self._lags[output.target].is_near(planned, done, now_s))
        return all(near)

    def take_over(self, epoch: int) -> Pipeline:
        """Take the pipeline over from the leading run, and continue in its place, for the host that has the query in
        this epoch. Raises Conflict if another host has taken the query, or if the pipeline is no longer the one that is
        followed, and PipelineFailed. After either error the next run continues from the checkpoints that the row
        names."""
        assert self._row is not None, "it was started"
        store, now = self._store, self._store.runtime.clock.now
        holder = row_of.this_process(self._token)
        before = self._row
        outputs = [step.output for step in self._steps]
        if (why := self.failure()) is not None:
            raise Conflict(f"the standby of '{self._name}' had ended: {why}")
        row = row_of.claim(
            store.catalog, self._name, self._text, outputs, holder, now=now(), fenced=DEPLOYED, epoch=epoch
        )
        heartbeat = Heartbeat(store.catalog, store.runtime, self._name, holder)
        try:
            if row.generation != before.generation or _checkpoints(row) != _checkpoints(before):
                raise Conflict(
                    f"pipeline '{self._name}' has started over with new checkpoints, which its standby did not follow"
                )
            self._role.become("leads")
            for output in row.outputs:
                self._finish_planned(output)
            own = (replace(each, checkpoint=self._outputs[each.target].checkpoint) for each in row.outputs)
            row = replace(row, outputs=tuple(own))
            # `stop` must not remove these checkpoints any more: the row may name them, even if `save` fails.
            self._outputs = {}
            row_of.save(store.catalog, row)
            self._role.become("plans")
            PIPELINE_STARTED(pipeline=self._name, generation=row.generation, start="takes over")
            pipeline = Pipeline(
                store,
                self._spark,
                self._name,
                self._steps,
                self._prepared,
                heartbeat,
                once=False,
                owned=False,
                trigger_us=self._trigger_us,
                queries=self._queries,
            )
        except BaseException as exc:
            heartbeat.close()
            row_of.finish(store.catalog, self._name, holder, now=now(), error=None)
            if isinstance(exc, Conflict | PipelineFailed) or not isinstance(exc, Exception):
                raise
            raise PipelineFailed(self._name, "its take-over", explain(exc)) from exc
        threading.Thread(target=_drop, args=(store, before), name="drop-checkpoints", daemon=True).start()
        return pipeline

    def stop(self) -> None:
        """Stop following, and remove the checkpoints unless the pipeline's row may name them."""
        self._role.become("ended")
        shutil.rmtree(self._role.file.parent, ignore_errors=True)  # a missing file tells the sources the same
        stop_queries(self._queries.values())
        for output in self._outputs.values():
            output_checkpoint(self._store, output.checkpoint).drop()

    def _followed_row(self) -> PipelineRow:
        row = row_of.find(self._store.catalog, self._name)
        if not row.prepared or any(not each.checkpoint or each.target_id is None for each in row.outputs):
            raise Conflict(f"pipeline '{self._name}' has no checkpoints yet")
        row_of.refuse_changed(row, [step.output for step in self._steps], deployed=True)
        return row

    def _await_planned(self, leader: CheckpointFolder) -> int:
        while self._wanted():
            if (planned := last_planned(leader)) >= 0:
                return planned
            time.sleep(10 * _POLL_S)
        raise Conflict(f"the standby of '{self._name}' is no longer wanted")

    def _finish_planned(self, output: PipelineOutput) -> None:
        """Wait until all batches are done that the leader may have published."""
        planned = last_planned(output_checkpoint(self._store, output.checkpoint))
        own = self._prepared[output.target].checkpoint
        while last_committed(own) < planned:
            if (why := self.failure()) is not None:
                raise PipelineFailed(self._name, "its take-over", why)
            time.sleep(_POLL_S)


def copy_checkpoint(leader: CheckpointFolder, sibling: str, planned: int) -> None:
    """Copy a checkpoint as it was after Spark planned the batch `planned` and before Spark ran it. The standby begins
    by repeating this batch.

    A file of a state's version may need other files that were written before it. So the other files are listed last."""
    known = {name for name in leader.files() if _is_before(name, planned)}
    others = {name for name in leader.files() if not (_VERSION.search(name) or _NUMBER.search(name))} - {MARK_FILE}
    leader.copy(sibling, sorted(known | others))


def _is_before(name: str, planned: int) -> bool:
    if found := _NUMBER.search(name):
        return int(found[2]) < planned + (found[1] == "offsets")
    version = _VERSION.search(name)
    return version is not None and int(version[1]) <= planned


def _checkpoints(row: PipelineRow) -> list[tuple[str, str]]:
    return sorted((each.target, each.checkpoint) for each in row.outputs)


def _drop(store: Store, before: PipelineRow) -> None:
    """Remove the checkpoints of the run that led."""
    for output in before.outputs:
        output_checkpoint(store, output.checkpoint).drop()


class StandbyLag:
    """How far a standby is behind in one statement. `repeated` is the first batch that the standby runs, which takes
    longest."""

    def __init__(self, repeated: int) -> None:
        self._repeated = repeated
        self._seen: deque[tuple[int, float]] = deque()  # each planned batch, and when it was first seen
        self._is_near = False

    def is_near(self, planned: int, done: int, now_s: float) -> bool:
        """True if the standby is at most two batches behind, or only a few seconds. Catching up then takes less time
        than a start, because the leader no longer uses the processor. `planned` is the last batch that the leader has
        planned, `done` the last one that the standby is done with; `now_s` never falls."""
        if not self._seen or planned > self._seen[-1][0]:
            self._seen.append((planned, now_s))
        while self._seen and self._seen[0][0] <= done:
            self._seen.popleft()
        lag_s = now_s - self._seen[0][1] if self._seen else 0.0
        within_s = _LOST_S if self._is_near else _READY_S
        self._is_near = done >= self._repeated and (planned - done <= _BATCHES or lag_s <= within_s)
        return self._is_near
