"""What a hot standby decides without Spark: what it copies, where the leader's batches end, and what it publishes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import anabranch as ab
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.options import from_json_option, to_json_option
from anabranch.spark.pipelines.followed_results import FollowedResults, LeaderBatches
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.standby import StandbyLag, copy_checkpoint, refuse_unfollowable
from anabranch.spark.source.following import (
    MARK_FILE,
    AwaitedStandby,
    FollowedBatches,
    FollowedRun,
    StandbyRole,
    write_mark,
)
from anabranch.spark.source.offsets import SourceOffset
from tests.s3_server import Proxy, Spoil, put_object
from tests.s3_server import fresh_url as s3_url
from tests.spark.pipelines import SOURCE, new_store, put

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


@pytest.fixture
def role(tmp_path: Path) -> StandbyRole:
    return StandbyRole(tmp_path / "role")


def follower(folder: Path, role: StandbyRole) -> FollowedBatches:
    run = FollowedRun(str(folder / "0001"), str(folder / "00012"), "counts", str(role.file), None)
    return FollowedBatches(from_json_option(FollowedRun, "follow", to_json_option(run)), Runtime())


def leader(folder: Path, role: StandbyRole) -> LeaderBatches:
    of_leader, own = (checkpoint_folder(str(folder / name), Runtime()) for name in ("0001", "00012"))
    return LeaderBatches("counts", of_leader, own, role)


def test_a_standby_ends_its_batches_where_the_leader_does_until_it_plans_its_own(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    start, first, second = offsets(store, 2)
    planned(tmp_path / "0001", 0, first)
    follows = follower(tmp_path, role)
    assert follows.end_of_batch(start) == first
    planned(tmp_path / "00012", 0, first)
    planned(tmp_path / "0001", 1, first, watermark_ms=7)  # a batch that only closes windows
    assert follows.end_of_batch(first) == first
    planned(tmp_path / "00012", 1, first, watermark_ms=7)
    planned(tmp_path / "0001", 2, second, watermark_ms=7)
    role.become("leads")  # it still has to do what the leader planned
    assert follows.end_of_batch(first) == second
    role.become("plans")
    assert follows.end_of_batch(second) is None


def test_a_standby_publishes_only_what_the_leader_has_not_once_it_leads(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    _, first = offsets(store, 1)
    for folder in ("0001", "00012"):
        planned(tmp_path / folder, 0, first)
    done(tmp_path / "0001", 0)
    assert leader(tmp_path, role).is_done(0)
    assert leader(tmp_path, role).await_done(0)
    for folder in ("0001", "00012"):
        planned(tmp_path / folder, 1, first, watermark_ms=7)
    assert not leader(tmp_path, role).is_done(1)
    role.become("leads")
    assert leader(tmp_path, role).await_done(0)
    assert not leader(tmp_path, role).await_done(1)


def test_once_it_leads_a_standby_publishes_a_batch_without_computing_and_keeping_it_first(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    _, first = offsets(store, 1)
    for folder in ("0001", "00012"):
        planned(tmp_path / folder, 0, first)
    role.become("leads")
    published: list[int] = []
    untouched = cast("DataFrame", object())
    FollowedResults(leader(tmp_path, role), role, lambda frame, batch: published.append(batch))(untouched, 0)
    assert published == [0]


def test_a_standby_that_waits_for_its_leader_is_woken_when_it_leads(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    _, first = offsets(store, 1)
    for folder in ("0001", "00012"):
        planned(tmp_path / folder, 0, first)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leader(tmp_path, role).await_done, 0)
        role.become("leads")
        assert waiting.result(10) is False


def test_a_standby_that_differs_from_its_leader_is_behind_it_or_is_stopped_fails(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    start, first = offsets(store, 1)
    planned(tmp_path / "0001", 0, first)
    planned(tmp_path / "00012", 0, first, watermark_ms=7)
    with pytest.raises(Conflict, match="has another batch 0 than the leader"):
        leader(tmp_path, role).is_done(0)
    planned(tmp_path / "0001", 150, first)
    with pytest.raises(Conflict, match="too far behind: the leader no longer has batch 1"):
        follower(tmp_path, role).end_of_batch(first)
    (tmp_path / "0001" / "offsets" / "150").unlink()
    follows = follower(tmp_path, role)
    role.become("ended")
    with pytest.raises(Conflict, match="has ended"):
        follows.end_of_batch(start)
    with pytest.raises(Conflict, match="has ended"):
        leader(tmp_path, role).await_done(0)


def test_the_sources_of_a_standby_end_when_its_driver_has_removed_its_files(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    start, _ = offsets(store, 1)
    role.file.unlink()
    with pytest.raises(Conflict, match="has ended"):
        follower(tmp_path, role).end_of_batch(start)


def test_a_run_waits_for_a_standby_that_is_behind_for_at_most_as_long_as_its_last_batch_took(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    _, first = offsets(store, 1)
    for batch in range(6):
        planned(tmp_path / "0001", batch, first)
    checkpoint = checkpoint_folder(str(tmp_path / "0001"), Runtime())
    run = AwaitedStandby(checkpoint, 0.01)
    assert waited_s(run, after_s=0.3) < 0.1  # it has none
    write_mark(checkpoint, 3)
    assert waited_s(run, after_s=0.3) == pytest.approx(0.3, abs=0.1)
    write_mark(checkpoint, 4)
    assert waited_s(run, after_s=0.3) < 0.1


def test_a_run_waits_for_its_standby_in_a_bucket_too_but_not_without_an_answer(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    _, first = offsets(store, 1)
    with Proxy() as proxy:
        base, mark, options = s3_url(port=proxy.port).partition("?")
        for batch in range(6):
            planned(tmp_path, batch, first)
            put_object(
                f"{base}{mark}{options}", f"0001/offsets/{batch}", (tmp_path / "offsets" / str(batch)).read_bytes()
            )
        at = [f"{base}/{name}{mark}{options}" for name in ("0001", "00012")]
        checkpoint = checkpoint_folder(at[0], Runtime())
        run = AwaitedStandby(checkpoint, 0.01)
        follows = FollowedBatches(FollowedRun(at[0], at[1], "counts", str(role.file), None), Runtime())
        put_object(f"{base}{mark}{options}", "00012/offsets/2", (tmp_path / "offsets" / "2").read_bytes())
        assert follows.end_of_batch(first) == first
        assert waited_s(run, after_s=0.8) >= 0.8
        write_mark(checkpoint, 3)
        assert waited_s(run, after_s=0.8) < 0.6
        write_mark(checkpoint, 2)
        proxy.spoil = lambda exchange: Spoil(403, code="AccessDenied")
        assert waited_s(run, after_s=0.8) < 0.6
        write_mark(checkpoint, 4)


def waited_s(run: AwaitedStandby, *, after_s: float) -> float:
    time.sleep(after_s)  # the batch takes that long
    begun = time.monotonic()
    run.let_catch_up()
    return time.monotonic() - begun


def test_a_standby_tells_its_leader_how_far_it_is(store: ab.Store, tmp_path: Path, role: StandbyRole) -> None:
    start, first, second = offsets(store, 2)
    planned(tmp_path / "0001", 0, first)
    planned(tmp_path / "0001", 1, second)
    follows = follower(tmp_path, role)
    follows.end_of_batch(start)
    assert (tmp_path / "0001" / "standby").read_text() == f"{-1:020}"
    planned(tmp_path / "00012", 0, first)
    follows.end_of_batch(first)
    assert (tmp_path / "0001" / "standby").read_text() == f"{0:020}"


def test_a_mark_that_two_sources_of_a_standby_write_at_once_is_always_whole(tmp_path: Path) -> None:
    code = (
        "import sys; from anabranch.runtime.ports import Runtime; "
        "from anabranch.spark.checkpoint_folder import checkpoint_folder; "
        "from anabranch.spark.source.following import write_mark; "
        "[write_mark(checkpoint_folder(sys.argv[1], Runtime()), batch) for batch in range(1000)]"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    checkpoint, found = checkpoint_folder(str(tmp_path), Runtime()), set[int]()
    while any(each.poll() is None for each in writers):
        if (mark := checkpoint.read(MARK_FILE)) is not None:
            found.add(len(mark))
    assert found == {20} and [each.returncode for each in writers] == [0, 0]


def test_a_run_that_has_taken_over_writes_no_more_into_the_checkpoint_that_it_followed(
    store: ab.Store, tmp_path: Path, role: StandbyRole
) -> None:
    _, first, second = offsets(store, 2)
    planned(tmp_path / "0001", 0, first)
    planned(tmp_path / "0001", 1, second)
    planned(tmp_path / "00012", 0, first)
    follows = follower(tmp_path, role)
    role.become("leads")
    assert follows.end_of_batch(first) == second
    planned(tmp_path / "00012", 1, second)
    role.become("plans")
    assert follows.end_of_batch(second) is None
    assert sorted(each.name for each in (tmp_path / "0001").iterdir()) == ["offsets"]


def test_a_standby_is_near_once_it_has_run_a_batch_and_is_at_most_two_batches_or_five_seconds_behind() -> None:
    lag = StandbyLag(10)
    assert not lag.is_near(planned=10, done=9, now_s=0)  # the first batch takes longest
    assert not lag.is_near(planned=30, done=9, now_s=20)
    assert not lag.is_near(planned=31, done=12, now_s=26)  # 30 was planned 6 s ago
    assert lag.is_near(planned=31, done=30, now_s=27)
    assert lag.is_near(planned=50, done=47, now_s=28)
    assert lag.is_near(planned=60, done=49, now_s=42)  # a longer wait is forgiven to one that was near
    assert not lag.is_near(planned=61, done=49, now_s=44)
    assert not lag.is_near(planned=62, done=52, now_s=49)
    assert lag.is_near(planned=62, done=60, now_s=60)


def test_a_copy_is_the_checkpoint_before_its_last_planned_batch(tmp_path: Path) -> None:
    leader = tmp_path / "0001"
    state = ["state/0/0/4.changelog", "state/0/0/5_a-b.changelog", "state/0/0/6.changelog", "state/0/0/2_c.zip"]
    others = ["metadata", "state/0/_metadata/v2/0", "state/0/0/SSTs/7-x.sst"]
    logs = [f"offsets/{n}" for n in (4, 5, 6)] + [f"commits/{n}" for n in (3, 4, 5)]
    for name in [*state, *others, *logs, "offsets/.5.crc", "standby"]:
        (leader / name).parent.mkdir(parents=True, exist_ok=True)
        (leader / name).write_text(name)
    copy_checkpoint(checkpoint_folder(str(leader), Runtime()), "00012", 5)
    copied = {str(each.relative_to(tmp_path / "00012")) for each in (tmp_path / "00012").rglob("*") if each.is_file()}
    left = {"state/0/0/6.changelog", "offsets/6", "commits/5", "offsets/.5.crc", "standby"}
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


def test_a_stream_that_was_renamed_is_followed_by_its_id(store: ab.Store, tmp_path: Path, role: StandbyRole) -> None:
    start, first = offsets(store, 1)
    renamed = replace(first, stream=StreamName("iot", "renamed"))
    planned(tmp_path / "0001", 0, renamed)
    assert follower(tmp_path, role).end_of_batch(start) == renamed
    planned(tmp_path / "00012", 0, first)
    done(tmp_path / "0001", 0)
    assert leader(tmp_path, role).is_done(0)
