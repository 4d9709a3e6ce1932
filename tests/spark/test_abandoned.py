"""Checkpoints that no run goes on from are removed, and no others. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.catalog.state.pipeline import PipelineOutput
from anabranch.catalog.state.query import QueryLease, QueryStandby
from anabranch.deployments import hosting
from anabranch.errors import Conflict, PipelineFailed, StoreUnavailable
from anabranch.model.ids import Micros, StreamId
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.pipelines import admin
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.checkpoint_places import drop_abandoned, standby_number
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.prepare import PreparedQuery
from anabranch.spark.pipelines.record import PipelineRow
from anabranch.spark.pipelines.run import DEPLOYED
from anabranch.spark.pipelines.standby import Standby
from tests.s3_server import BUCKET, fresh_url, put_object
from tests.spark.pipelines import COUNTS, new_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def row(*checkpoints: str) -> PipelineRow:
    outputs = [PipelineOutput(f"out/{n}", None, (), 1, "", checkpoint=each) for n, each in enumerate(checkpoints)]
    return PipelineRow("q", "", tuple(outputs), 1, True, row_of.Restart(), "running", 0, 0, 0)


def test_what_lies_beside_the_checkpoints_of_the_row_under_lower_numbers_is_removed(
    store: ab.Store, tmp_path: Path
) -> None:
    root = tmp_path / "river" / "pipelines" / "q"
    leads, killed, later = "0001", standby_number(1, Micros(7)), standby_number(1, Micros(9))
    for target in ("out.0", "out.1"):
        for name in (leads, killed, later, "notes"):
            (root / target / name / "state" / "0").mkdir(parents=True)
            (root / target / name / "metadata").touch()
    named = row(f"pipelines/q/out.0/{leads}", f"pipelines/q/out.1/{killed}")
    drop_abandoned(store, named, before=standby_number(1, Micros(8)))
    left = [sorted(each.name for each in (root / target).iterdir()) for target in ("out.0", "out.1")]
    assert left == [sorted([leads, later, "notes"]), sorted([killed, later, "notes"])]


def test_in_a_bucket_too(store: ab.Store) -> None:
    base, mark, options = fresh_url().partition("?")

    def place(number: str) -> str:
        return f"{base}/pipelines/q/out.0/{number}{mark}{options}"

    leads, killed, later = (standby_number(1, Micros(each)) for each in (7, 8, 9))
    first = checkpoint_folder(place(leads), store.runtime)
    for name in ("metadata", "offsets/0", "state/0/0/1.delta"):
        checkpoint_folder(place("0001"), store.runtime)._objects.put(name, [b"x"])  # type: ignore[union-attr]
    checkpoint_folder(place("0001"), store.runtime).copy(leads, ["metadata", "offsets/0"])
    for each in (killed, later):
        first.copy(each, ["metadata", "offsets/0"])
    assert first.siblings() == ["0001", leads, killed, later]
    drop_abandoned(store, row(place(leads)), before=later)
    assert first.siblings() == [leads, later]


def test_hadoops_markers_of_folders_are_no_files_of_a_checkpoint(store: ab.Store) -> None:
    address = fresh_url(bucket=BUCKET)
    base, mark, options = address.partition("?")
    leader = checkpoint_folder(f"{base}/out.0/0001{mark}{options}", store.runtime)
    markers = ("", "offsets/", "state/", "state/0/", "state/0/0/")
    files = {"metadata": b"m", "offsets/0": b"o", "offsets-x": b"x", "state/0/0/1.delta": b"d"}
    for name, content in {**dict.fromkeys(markers, b""), **files}.items():
        put_object(address, f"out.0/0001/{name}", content)
    assert sorted(leader.files()) == sorted(files)
    assert leader.names("offsets") == ["0"]
    number = standby_number(1, Micros(7))
    leader.copy(number, leader.files())
    assert leader.siblings() == ["0001", number]
    leader.beside(number).drop()
    assert leader.siblings() == ["0001"]
    leader.drop()
    assert leader.siblings() == leader.files() == []


def test_once_another_host_has_the_query_no_run_of_the_earlier_one_takes_its_pipeline(store: ab.Store) -> None:
    store.queries.deploy("q", COUNTS)
    outputs = [each.output for each in plan(COUNTS)]

    def claim(host: str, epoch: int) -> PipelineRow:
        holder = row_of.this_process(f"{DEPLOYED}{host}")
        return row_of.claim(store.catalog, "q", COUNTS, outputs, holder, now=0, fenced=DEPLOYED, epoch=epoch)

    for epoch, host in ((1, "a"), (2, "b")):
        lease = QueryLease(host, 1, "h", Micros(0))
        assert hosting.claim(store.catalog, "q", lease, now=Micros(0)) is not None
        assert claim(host, epoch).holder == row_of.this_process(f"{DEPLOYED}{host}")
    with pytest.raises(Conflict, match="no longer held by the host of this run"):
        claim("a", 1)


def test_a_run_removes_nothing_while_a_standby_may_take_over(store: ab.Store) -> None:
    store.queries.deploy("q", COUNTS, standby="hot")
    now = store.runtime.clock.now()
    until = Micros(now + 10_000_000)
    found = hosting.claim(store.catalog, "q", QueryLease("a", 1, "h", until), now=now)
    assert found is not None
    outputs = [each.output for each in plan(COUNTS)]
    row_of.claim(store.catalog, "q", COUNTS, outputs, row_of.this_process("x"), now=now)
    assert hosting.without_standby(store.catalog, "q", 1) is not None
    found = hosting.update(store.catalog, "q", 1, lambda each: replace(each, state="running"))
    standby = QueryStandby("b", 2, "h", until, found.change, ready=True)
    assert hosting.claim_standby(store.catalog, "q", standby, now=now)
    assert hosting.without_standby(store.catalog, "q", 1) is None
    with pytest.raises(Conflict):
        hosting.without_standby(store.catalog, "q", 0)
    # One that a host has lost does not take over.
    (found,) = hosting.queries(store.catalog)
    assert hosting.begin_in_standby(found, "a") is None
    taken = hosting.begin_in_standby(found, "b")
    assert taken is not None and taken.hot_standby is None
    store.queries.deploy("q", COUNTS, standby="warm")
    assert hosting.without_standby(store.catalog, "q", 1) is not None
    assert hosting.queries(store.catalog)[0].hot_standby is None


def test_a_deletion_removes_the_checkpoints_of_standbys(store: ab.Store, tmp_path: Path) -> None:
    outputs = [each.output for each in plan(COUNTS)]
    claimed = row_of.claim(store.catalog, "q", COUNTS, outputs, row_of.this_process("x"), now=0)
    root = tmp_path / "river" / "pipelines" / "q"
    for number in ("0001", standby_number(1, Micros(7))):
        (root / "out.counts" / number / "offsets").mkdir(parents=True)
    output = replace(claimed.outputs[0], checkpoint="pipelines/q/out.counts/0001")
    row_of.save(store.catalog, replace(claimed, outputs=(output,), prepared=True))
    row_of.finish(store.catalog, "q", row_of.this_process("x"), now=0)
    admin.delete(store, "q")
    assert not root.exists()


def test_a_take_over_that_may_have_been_stored_keeps_the_checkpoints_that_the_row_names(
    store: ab.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queries.deploy("q", COUNTS, standby="hot")
    assert hosting.claim(store.catalog, "q", QueryLease("a", 1, "h", Micros(0)), now=Micros(0)) is not None
    (step,) = plan(COUNTS)
    claimed = row_of.claim(store.catalog, "q", COUNTS, [step.output], row_of.this_process(f"{DEPLOYED}x"), now=0)
    leads = replace(claimed.outputs[0], checkpoint="pipelines/q/out.counts/0001")
    row = replace(claimed, outputs=(leads,), prepared=True)
    row_of.save(store.catalog, row)
    standby = Standby(store, None, "q", COUNTS, parameters={}, trigger_us=None, wanted=lambda: True)  # type: ignore[arg-type]
    own = replace(leads, checkpoint="pipelines/q/out.counts/00017")
    standby._row, standby._outputs = row, {step.target: own}
    checkpoint = checkpoint_folder(str(tmp_path / "river" / own.checkpoint), store.runtime)
    standby._prepared = {step.target: PreparedQuery(None, StreamId(1), None, checkpoint, {})}  # type: ignore[arg-type]
    for each in (leads, own):
        (tmp_path / "river" / each.checkpoint / "offsets").mkdir(parents=True)
    save = row_of.save

    def save_unanswered(*row: Any) -> None:
        save(*row)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(row_of, "save", save_unanswered)
    with pytest.raises(PipelineFailed, match="the answer was lost"):
        standby.take_over(1)
    standby.stop()  # as its driver does
    assert row_of.find(store.catalog, "q").outputs[0].checkpoint == own.checkpoint
    assert (tmp_path / "river" / own.checkpoint / "offsets").is_dir()
