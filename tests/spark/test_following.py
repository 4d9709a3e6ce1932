"""What a hot standby decides without Spark: what it copies, where the leader's batches end, and what it publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.state.pipeline import PIPELINE, PipelineHolder, PipelineOutput, Restart, StoredPipeline
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.standby import copy_checkpoint, refuse_unfollowable
from anabranch.spark.source.following import FollowedBatches, FollowedRun
from anabranch.spark.source.offsets import SourceOffset
from tests.spark.pipelines import SOURCE, new_store, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river", segments=1) as opened:
        yield opened


def planned(folder: Path, batch: int, offset: SourceOffset, *, watermark_ms: int = 0) -> None:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": watermark_ms}), json.dumps(offset.to_json())]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))


def done(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "commits" / str(batch)).write_text("v1")


def offsets(store: ab.Store, count: int) -> list[SourceOffset]:
    head = store.cuts.head(SOURCE)
    found = [SourceOffset(StreamName.parse(SOURCE), head, head)]
    for number in range(count):
        put(store, [number])
        found.append(found[0].at(store.cuts.tail(SOURCE)))
    return found


def hold(store: ab.Store, token: str, checkpoint: str) -> None:
    output = PipelineOutput("out/counts", None, (SOURCE,), 1, "f", checkpoint)
    row = StoredPipeline("counts", "", (output,), 1, True, Restart(), "running", 0, 0, 0)
    with store.catalog.writing("pipeline counts") as txn:
        txn.put_state(PIPELINE, "counts", replace(row, holder=PipelineHolder(1, "host", token)))


def follower(store: ab.Store, folder: Path) -> FollowedBatches:
    (folder / "alive").touch()
    places = {"leader": str(folder / "0001"), "own": str(folder / "00012"), "stored": "own"}
    run = FollowedRun(
        **places, pipeline="counts", token="mine", target="out/counts", alive=str(folder / "alive"), pause_us=None
    )
    return FollowedBatches(FollowedRun.from_option(run.to_option()), store)


def test_a_standby_ends_its_batches_where_the_leader_does_and_plans_its_own_once_the_row_names_its_checkpoint(
    store: ab.Store, tmp_path: Path
) -> None:
    start, first, second = offsets(store, 2)
    hold(store, "leader", "other")
    planned(tmp_path / "0001", 0, first)
    follows = follower(store, tmp_path)
    assert follows.end_of_batch(start) == first
    planned(tmp_path / "00012", 0, first)
    planned(tmp_path / "0001", 1, first, watermark_ms=7)  # a batch that only closes windows
    assert follows.end_of_batch(first) == first
    planned(tmp_path / "00012", 1, first, watermark_ms=7)
    planned(tmp_path / "0001", 2, second, watermark_ms=7)
    hold(store, "mine", "other")  # it leads, and still has to do what the leader planned
    assert follows.end_of_batch(first) == second
    hold(store, "mine", "own")
    assert follows.end_of_batch(second) is None


def test_a_standby_publishes_only_what_the_leader_has_not_once_it_leads(store: ab.Store, tmp_path: Path) -> None:
    _, first = offsets(store, 1)
    hold(store, "leader", "other")
    for folder in ("0001", "00012"):
        planned(tmp_path / folder, 0, first)
    done(tmp_path / "0001", 0)
    assert follower(store, tmp_path).is_published(0)
    for folder in ("0001", "00012"):
        planned(tmp_path / folder, 1, first, watermark_ms=7)
    hold(store, "mine", "other")
    assert not follower(store, tmp_path).is_published(1)


def test_a_standby_that_differs_from_its_leader_is_behind_it_or_is_stopped_fails(
    store: ab.Store, tmp_path: Path
) -> None:
    start, first = offsets(store, 1)
    hold(store, "leader", "other")
    planned(tmp_path / "0001", 0, first)
    planned(tmp_path / "00012", 0, first, watermark_ms=7)
    with pytest.raises(Conflict, match="has another batch 0 than the leader"):
        follower(store, tmp_path).is_published(0)
    planned(tmp_path / "0001", 150, first)
    with pytest.raises(Conflict, match="behind what the leader keeps: batch 1"):
        follower(store, tmp_path).end_of_batch(first)
    (tmp_path / "0001" / "offsets" / "150").unlink()
    follows = follower(store, tmp_path)
    (tmp_path / "alive").unlink()
    with pytest.raises(Conflict, match="has ended"):
        follows.end_of_batch(start)


def test_a_copy_is_the_checkpoint_before_its_last_planned_batch(tmp_path: Path) -> None:
    leader = tmp_path / "0001"
    state = ["state/0/0/4.changelog", "state/0/0/5_a-b.changelog", "state/0/0/6.changelog", "state/0/0/2_c.zip"]
    others = ["metadata", "state/0/_metadata/v2/0", "state/0/0/SSTs/7-x.sst"]
    logs = [f"offsets/{n}" for n in (4, 5, 6)] + [f"commits/{n}" for n in (3, 4, 5)]
    for name in [*state, *others, *logs, "offsets/.5.crc"]:
        (leader / name).parent.mkdir(parents=True, exist_ok=True)
        (leader / name).write_text(name)
    copy_checkpoint(checkpoint_folder(str(leader), Runtime()), "00012", 5)
    copied = {str(each.relative_to(tmp_path / "00012")) for each in (tmp_path / "00012").rglob("*") if each.is_file()}
    left = {"state/0/0/6.changelog", "offsets/6", "commits/5", "offsets/.5.crc"}
    assert copied == {*state, *others, *logs} - left


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT device, rand() AS chance FROM STREAM iot.sensors", "uses rand"),
        ("SELECT device, current_timestamp AS now FROM STREAM iot.sensors", "uses current_timestamp"),
        ("SELECT s.device FROM STREAM iot.sensors s JOIN iot.known k ON s.device = k.device", "iot/known as a table"),
    ],
)
def test_a_query_that_computes_not_always_the_same_has_no_hot_standby(query: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        refuse_unfollowable(plan(f"CREATE STREAM out.x AS {query}"))


def test_a_stream_that_was_renamed_is_followed_by_its_id(store: ab.Store, tmp_path: Path) -> None:
    start, first = offsets(store, 1)
    hold(store, "leader", "other")
    renamed = replace(first, stream=StreamName("iot", "renamed"))
    planned(tmp_path / "0001", 0, renamed)
    follows = follower(store, tmp_path)
    assert follows.end_of_batch(start) == renamed
    planned(tmp_path / "00012", 0, first)
    done(tmp_path / "0001", 0)
    assert follows.is_published(0)
