"""A replay takes the place of its query, as state of the store: no host runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.catalog.state.codec import stream_id_text
from anabranch.catalog.state.pipeline import PIPELINE, PipelineHolder, PipelineOutput, Restart, StoredPipeline
from anabranch.catalog.state.query import QueryLease
from anabranch.deployments import hosting
from anabranch.deployments.record import need_query
from anabranch.deployments.replay import replay_stream, swap
from anabranch.errors import Conflict, InvalidArgument, QueryNotFound
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.spark.pipelines import admin
from anabranch.spark.queries.replay import has_caught_up
from anabranch.store import Store, connect

MEANS = PipelineOutput("out/means", "out/means_late", ("in/raw",), 1, "f", sides=("out/hot",))


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Store]:
    """A store with checkpoints, which Spark can't keep in memory."""
    with connect(tmp_path / "store", create=True) as opened:
        yield opened


def run(store: Store, query: str, output: PipelineOutput, *, fingerprint: str) -> None:
    """The state that a driver leaves which runs a query of this one statement."""
    names = [StreamName.parse(each) for each in (output.target, str(output.late), *output.sides)]
    target, late, side = (store.streams.create(name, schema=pa.schema([("n", pa.int64())])).id for name in names)
    fed = replace(
        output,
        target_id=stream_id_text(target),
        late_id=stream_id_text(late),
        side_ids=(stream_id_text(side),),
        checkpoint=f"pipelines/{query}",
        starts={"in/raw": "2bcd55e1e5c62ee7:0000000000000000@0"},
        fingerprint=fingerprint,
    )
    made = tuple(sorted(fed.ids))
    holder = PipelineHolder(1, "host", f"query:1:{query}")
    row = StoredPipeline(query, "", (fed,), 1, True, Restart(), "running", 1, 2, 3, holder=holder, made=made)
    with store.catalog.writing(f"pipeline {query}") as txn:
        txn.put_state(PIPELINE, query, row)
    lease = QueryLease(query, 1, "host", Micros(store.runtime.clock.now() + 60_000_000))
    assert hosting.claim(store.catalog, query, lease, now=store.runtime.clock.now()) is not None


def replayed(store: Store, *, keep: bool = True) -> str:
    """A query that runs, and its replay, which has caught up; returns its name."""
    store.scopes.create("out")
    store.queries.deploy("means", "one")
    run(store, "means", MEANS, fingerprint="old")
    name = store.queries.replay("means", "two", keep_results=keep).name
    built, late, side = (
        str(replay_stream(StreamName.parse(each), 2)) for each in ("out/means", "out/means_late", "out/hot")
    )
    run(store, name, replace(MEANS, target=built, late=late, sides=(side,)), fingerprint="shadow")
    return name


def swapped(store: Store, name: str, epoch: int = 1) -> dict[str, str]:
    with store.catalog.writing() as txn:
        return dict(swap(txn, name, epoch, [replace(MEANS, fingerprint="new")], store.runtime.clock.now()))


def pipeline(store: Store, name: str) -> StoredPipeline:
    with store.catalog.reading() as txn:
        found = txn.state(PIPELINE, name)
    assert found is not None
    return found


@pytest.mark.parametrize("keep", [True, False])
def test_the_new_results_take_the_names_and_the_query_their_checkpoints(anywhere: Store, keep: bool) -> None:
    name = replayed(anywhere, keep=keep)
    before = {each: anywhere.streams.get(each).id for each in ("out/means", "out/hot", "out/means_late")}
    built = {each: anywhere.streams.get(str(replay_stream(StreamName.parse(each), 2))).id for each in before}
    anywhere.aliases.add("out/means", "out/mean")
    kept = swapped(anywhere, name)
    assert kept == ({"out/means": "out/means_v1", "out/hot": "out/hot_v1"} if keep else {})
    assert {each: anywhere.streams.get(each).id for each in before} == built
    assert anywhere.streams.get("out/mean").id == built["out/means"]
    assert anywhere.streams.get("out/means_v1").id == before["out/means"]
    assert (anywhere.queries.get("means").version, anywhere.queries.get("means").wanted) == (2, "running")
    assert [each.text for each in anywhere.queries.versions("means")] == ["one", "two"]
    (output,) = pipeline(anywhere, "means").outputs
    assert (output.target, output.late, output.sides) == (MEANS.target, MEANS.late, MEANS.sides)
    assert (output.fingerprint, output.checkpoint) == ("new", f"pipelines/{name}")
    (left,) = pipeline(anywhere, name).outputs
    assert (left.target, left.sides, left.checkpoint) == ("out/means_v1", ("out/hot_v1",), "pipelines/means")
    assert pipeline(anywhere, "means").holder is None and pipeline(anywhere, name).holder is None
    assert anywhere.queries.get(name).wanted == "deleted"
    with pytest.raises(Conflict, match="no longer held"):
        swapped(anywhere, name)


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_replay_kept_is_the_querys_and_is_deleted_with_its_results(on_disk: Store, keep: bool) -> None:
    name = replayed(on_disk, keep=keep)
    removed = on_disk.streams.create("out/removed", schema=pa.schema([("n", pa.int64())])).id
    present = pipeline(on_disk, "means")
    with on_disk.catalog.writing("pipeline means") as txn:  # a statement that an upgrade removed
        txn.put_state(PIPELINE, "means", replace(present, made=(*present.made, stream_id_text(removed))))
    swapped(on_disk, name)
    admin.delete(on_disk, name, drop_results=not keep)  # as the host does then
    kept = {"out/means_v1", "out/hot_v1"} if keep else set()
    made = {"out/means", "out/hot", "out/means_late", "out/removed"} | kept
    assert {str(each.name) for each in on_disk.streams.list("out")} == made
    assert set(on_disk.queries.get("means").made) == made
    on_disk.streams.create("out/own", schema=pa.schema([("n", pa.int64())]))
    if keep:
        on_disk.streams.copy("out/means_v1", "out/copied")
        on_disk.streams.rename("out/means_v1", "out/former")
    admin.delete(on_disk, "means", drop_results=True)
    left = {str(each.name) for each in on_disk.streams.list("out")}
    assert left == ({"out/own", "out/copied"} if keep else {"out/own"})


def test_a_query_that_is_deleted_alone_leaves_what_its_replays_kept(on_disk: Store) -> None:
    name = replayed(on_disk)
    swapped(on_disk, name)
    admin.delete(on_disk, name)
    admin.delete(on_disk, "means")
    left = {str(each.name) for each in on_disk.streams.list("out")}
    assert left == {"out/means", "out/hot", "out/means_v1", "out/hot_v1"}


def test_earlier_results_that_another_query_feeds_now_stay(on_disk: Store) -> None:
    name = replayed(on_disk)
    swapped(on_disk, name)
    admin.delete(on_disk, name)
    (other,) = pipeline(on_disk, "means").outputs
    former = stream_id_text(on_disk.streams.get("out/means_v1").id)
    fed = replace(other, target="out/means_v1", target_id=former, late=None, late_id=None, sides=(), side_ids=())
    with on_disk.catalog.writing("pipeline more") as txn:
        txn.put_state(PIPELINE, "more", replace(pipeline(on_disk, "means"), name="more", outputs=(fed,), made=()))
    planned = admin.plan_removal(on_disk, admin.find(on_disk, "means"), results=True, late=True, earlier=True)
    assert planned.kept == {"out/means_v1": "pipeline 'more' feeds it too"}
    assert set(planned.deleted) == {"out/means", "out/hot", "out/means_late", "out/hot_v1"}


def test_a_replay_that_was_lost_or_lacks_a_name_changes_nothing(anywhere: Store) -> None:
    name = replayed(anywhere)
    with pytest.raises(Conflict, match="no longer held"):
        swapped(anywhere, name, epoch=2)
    anywhere.streams.rename("out/hot", "out/warm")
    anywhere.streams.create("out/hot", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(InvalidArgument, match="'out/hot' is not a stream that query 'means' writes"):
        swapped(anywhere, name)
    assert anywhere.queries.get("means").version == 1
    assert anywhere.streams.get("out/means").id == int(str(pipeline(anywhere, "means").outputs[0].target_id), 16)
    anywhere.queries.delete(name)
    assert anywhere.queries.get(name).wanted == "deleted"
    with pytest.raises(Conflict, match="still being deleted"):
        anywhere.queries.replay("means")
    with pytest.raises(QueryNotFound):
        anywhere.queries.replay("other")


@pytest.mark.parametrize(
    ("report", "ready"),
    [
        ({"batch": 0, "batch_rows": 6, "lag": 0, "operators": [{}]}, False),
        ({"batch": 1, "batch_rows": 0, "lag": 0, "operators": [{}]}, True),
        ({"batch": 1, "batch_rows": 6, "lag": 0, "operators": [{}]}, True),
        ({"batch": 0, "batch_rows": 0, "lag": 0, "operators": [{}]}, True),
        ({"batch": 0, "batch_rows": 6, "lag": 0, "operators": []}, True),
        ({"batch": 1, "batch_rows": 6, "lag": 9, "lag_s": 4.0, "operators": [{}]}, True),
        ({"batch": 1, "batch_rows": 6, "lag": 9, "lag_s": 6.0, "operators": [{}]}, False),
        ({"batch": -1, "lag": 0}, False),
    ],
)
def test_a_replay_has_caught_up_once_it_has_published_what_it_read(
    store: Store, report: dict[str, Any], ready: bool
) -> None:
    name = replayed(store)
    reported = replace(pipeline(store, name), progress=({"state": "running", **report},))
    with store.catalog.writing() as txn:
        txn.put_state(PIPELINE, name, reported)
        row = need_query(txn, name)
    assert has_caught_up(store, row) is ready
