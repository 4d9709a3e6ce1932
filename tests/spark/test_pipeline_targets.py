"""The streams that a pipeline feeds: which it may feed, which it deletes, and that none is fed twice unasked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.catalog.state.pipeline import PIPELINE
from anabranch.errors import InvalidArgument, InvalidSql, StreamHasPipeline, StreamNotFound
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines import admin as pipeline_admin
from anabranch.spark.pipelines.run import Pipeline, run
from tests.spark.pipelines import COUNTS, SOURCE, counted, expected, new_store, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COPY = "CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"
COPIED = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("celsius", pa.float64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        put(opened, range(30))
        yield opened


def once(store: ab.Store, sql: str, name: str, spark: SparkSession, **options: object) -> Pipeline:
    pipeline = run(store, sql, name=name, spark=spark, once=True, **options)  # type: ignore[arg-type]
    assert pipeline.await_termination(240), pipeline.progress()
    return pipeline


def own_stream(store: ab.Store, name: str, schema: pa.Schema = COPIED) -> None:
    """A stream of somebody's, with an event in it."""
    store.scopes.create("out", exist_ok=True)
    store.streams.create(name, schema=schema, key=schema.names[0], time="at" if "at" in schema.names else None)
    with store.writer(name) as writer:
        writer.write(dict.fromkeys(schema.names))


# what it deletes


@pytest.mark.slow
def test_a_pipeline_deletes_no_stream_that_only_has_the_name_of_one_of_its_own(
    spark: SparkSession, store: ab.Store
) -> None:
    own_stream(store, "out/copy")  # a target that was there before
    own_stream(store, "out/copy_late")  # the statement drops nothing, so this is none of its own
    own_stream(store, "out/counts_tardy")
    once(store, f"{COPY}; {COUNTS}", "p", spark)
    # Its own late events under another name, and somebody's stream under theirs.
    store.streams.rename("out/counts_late", "out/stragglers")
    own_stream(store, "out/counts_late")
    row = pipeline_admin.find(store, "p")
    found = pipeline_admin.plan_removal(store, row, results=True, late=True)
    assert set(found.deleted) == {"out/counts", "out/stragglers"}
    assert found.kept == dict.fromkeys(["out/copy", "out/counts_late"], "this pipeline did not make it")

    assert set(pipeline_admin.delete(store, "p", drop_results=True)) == {"out/counts", "out/stragglers"}
    left = {str(info.name) for info in store.streams.list("out")}
    assert left == {"out/copy", "out/copy_late", "out/counts_late", "out/counts_tardy"}
    assert len(rows(store, "out/copy")) == 31
    assert len(rows(store, "out/copy_late")) == len(rows(store, "out/counts_late")) == 1


@pytest.mark.slow
def test_a_reset_follows_results_that_were_renamed(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    store.streams.rename("out/counts", "out/sums")
    own_stream(store, "out/counts")
    assert pipeline_admin.reset(store, "p", drop_results=True) == ("out/sums", "out/counts_late")
    assert not store.streams.exists("out/sums")
    assert len(rows(store, "out/counts")) == 1


@pytest.mark.slow
def test_what_earlier_generations_made_is_deleted_by_a_later_one(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    once(store, COUNTS, "p", spark, start_from="head", replace=True)
    once(store, COUNTS, "p", spark)
    assert pipeline_admin.delete(store, "p", drop_results=True) == ("out/counts", "out/counts_late")


@pytest.mark.slow
def test_a_row_that_knows_no_stream_ids_deletes_nothing_and_goes_on(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    with store.catalog.writing("pipeline p") as txn:
        row = txn.state(PIPELINE, "p")
        assert row is not None
        outputs = tuple(replace(each, target_id=None, late_id=None) for each in row.outputs)
        txn.put_state(PIPELINE, "p", replace(row, made=(), outputs=outputs))
    found = pipeline_admin.plan_removal(store, pipeline_admin.find(store, "p"), results=True, late=True)
    assert (found.deleted, set(found.kept)) == ({}, {"out/counts", "out/counts_late"})
    put(store, range(30, 60))
    once(store, COUNTS, "p", spark)
    assert counted(store) == expected(store, until=54)
    assert pipeline_admin.find(store, "p").outputs[0].target_id is not None


def test_a_run_that_is_refused_for_its_target_leaves_no_pipeline_behind(spark: SparkSession, store: ab.Store) -> None:
    own_stream(store, "out/counts")
    with pytest.raises(InvalidSql, match=r"line 2: 'out/counts' exists with other columns.*stream delete out/counts"):
        run(store, COUNTS, name="p", spark=spark)
    store.streams.delete("out/counts")
    own_stream(store, "out/counts_late")
    with pytest.raises(InvalidSql, match="'out/counts_late' exists with other columns"):
        run(store, COUNTS, name="p", spark=spark)
    assert pipeline_admin.pipelines(store) == []
    assert len(rows(store, "out/counts_late")) == 1
    assert not store.streams.exists("out/counts")


@pytest.mark.slow
def test_the_hint_to_drop_results_is_given_only_for_streams_that_the_pipeline_made(
    spark: SparkSession, store: ab.Store
) -> None:
    once(store, COUNTS, "p", spark)
    pipeline_admin.reset(store, "p")
    changed = COUNTS.replace("sum(celsius) AS total", "max(celsius) AS most")
    with pytest.raises(InvalidSql, match="run: anabranch pipeline reset p --drop-results"):
        run(store, changed, name="p", spark=spark)
    assert pipeline_admin.find(store, "p").state == "stopped"


@pytest.mark.slow
def test_replacing_results_leaves_a_stream_alone_that_the_statement_never_writes(
    spark: SparkSession, store: ab.Store
) -> None:
    own_stream(store, "out/copy_late")
    once(store, COPY, "p", spark)
    once(store, COPY, "p", spark, start_from="head", replace=True)
    assert len(rows(store, "out/copy")) == 30
    assert len(rows(store, "out/copy_late")) == 1


# who feeds it


@pytest.mark.slow
def test_the_same_statements_under_another_name_are_refused(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    with pytest.raises(
        StreamHasPipeline, match=r"pipeline 'p' already writes to 'out/counts'.*--name p.*--also"
    ) as refused:
        run(store, COUNTS, name="q", spark=spark)
    assert (refused.value.stream, refused.value.pipeline, refused.value.other) == ("out/counts", "p", "q")
    assert [row.name for row in pipeline_admin.pipelines(store)] == ["p"]
    # By another name of the same stream, too.
    store.aliases.add("out/counts", "out/sums")
    with pytest.raises(StreamHasPipeline):
        run(store, COUNTS.replace("out.counts", "out.sums"), name="q", spark=spark)
    assert counted(store) == expected(store, until=24)

    once(store, COUNTS, "q", spark, also=True)
    assert set(counted(store).values()) == {2}
    # Said once; and the first one goes on as before.
    put(store, range(30, 60))
    once(store, COUNTS, "q", spark)
    once(store, COUNTS, "p", spark)
    assert set(counted(store)) == set(expected(store, until=54))
    assert set(counted(store).values()) == {2}
    # What both feed is neither truncated nor deleted for one of them.
    with pytest.raises(StreamHasPipeline, match="holds results of pipeline"):
        run(store, COUNTS, name="p", spark=spark, start_from="head", replace=True)
    assert pipeline_admin.delete(store, "p", drop_results=True) == ()
    assert len(counted(store)) == len(expected(store, until=54))


@pytest.mark.slow
def test_a_pipeline_that_runs_for_the_first_time_keeps_others_from_its_targets(
    spark: SparkSession, store: ab.Store
) -> None:
    with run(store, COUNTS, name="p", spark=spark), pytest.raises(StreamHasPipeline):
        run(store, COUNTS, name="q", spark=spark)
    # One that was refused itself keeps nobody from anything.
    with pytest.raises(InvalidArgument, match="no --from says where"):
        run(store, COPY, name="r", spark=spark, start_from=store.cuts.tail("out/counts"))
    once(store, COPY, "s", spark)


@pytest.mark.slow
def test_late_events_of_two_pipelines_share_no_stream_unasked(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    store.streams.rename("out/counts", "out/sums")
    with pytest.raises(InvalidSql, match="'out/counts' was renamed to 'out/sums'"):
        run(store, COUNTS, name="q", spark=spark)
    schema = store.streams.get("out/sums").schema
    store.streams.create("out/counts", schema=schema.columns, key=schema.key, time=schema.time)
    with pytest.raises(StreamHasPipeline, match="'out/counts_late'"):
        run(store, COUNTS, name="q", spark=spark)


@pytest.mark.slow
def test_results_of_a_deleted_pipeline_are_not_appended_again_unasked(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    assert pipeline_admin.delete(store, "p") == ("out/counts_late",)
    for name in ("q", "p"):  # under its own name too
        with pytest.raises(StreamHasPipeline, match=r"still holds the results of pipeline 'p'.*--also") as refused:
            run(store, COUNTS, name=name, spark=spark)
        assert (refused.value.stream, refused.value.pipeline, refused.value.other) == ("out/counts", "p", name)
    with pytest.raises(StreamHasPipeline):  # begun anew, but without --replace
        run(store, COUNTS, name="q", spark=spark, start_from="head")
    assert pipeline_admin.pipelines(store) == []
    assert counted(store) == expected(store, until=24)
    once(store, COUNTS, "q", spark, start_from="head", replace=True)
    assert counted(store) == expected(store, until=24)
    # What q has taken over it goes on to feed; deleted, it leaves results behind as p did.
    put(store, range(30, 60))
    once(store, COUNTS, "q", spark)
    assert counted(store) == expected(store, until=54)
    pipeline_admin.delete(store, "q")
    with pytest.raises(StreamHasPipeline, match="of pipeline 'q'"):
        run(store, COUNTS, name="r", spark=spark)
    once(store, COUNTS, "r", spark, also=True)
    assert set(counted(store).values()) == {2}
    once(store, COUNTS, "r", spark)  # asked once
    assert pipeline_admin.delete(store, "r") == ("out/counts_late",)
    store.streams.truncate("out/counts", store.cuts.tail("out/counts"))  # nothing is left to double
    once(store, COUNTS, "s", spark)
    assert counted(store) == expected(store, until=54)


def test_two_statements_that_feed_one_stream_by_two_names_are_refused(spark: SparkSession, store: ab.Store) -> None:
    once(store, COPY, "p", spark)
    store.aliases.add("out/copy", "out/twin")
    with pytest.raises(InvalidSql, match="are the same stream"):
        run(store, f"{COPY}; {COPY.replace('copy', 'twin')}", name="p", spark=spark, start_from="head")


# what became of it


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False])
def test_a_target_that_was_deleted_is_noticed(spark: SparkSession, store: ab.Store, again: bool) -> None:
    once(store, COUNTS, "p", spark)
    schema = store.streams.get("out/counts").schema
    store.streams.delete("out/counts")
    if again:
        store.streams.create("out/counts", schema=schema.columns, key=schema.key, time=schema.time)
    said = "deleted and made again" if again else "deleted. Its checkpoints"
    with pytest.raises(InvalidArgument, match=rf"'out/counts' is not the stream.*{said}.*--from head.*reset p"):
        run(store, COUNTS, name="p", spark=spark)
    assert pipeline_admin.find(store, "p").state == "stopped"
    once(store, COUNTS, "p", spark, start_from="head")
    assert counted(store) == expected(store, until=24)
    # The one that somebody made is not the pipeline's to delete; what it made itself is.
    pipeline_admin.delete(store, "p", drop_results=True)
    assert store.streams.exists("out/counts") == again


@pytest.mark.slow
def test_a_target_that_was_renamed_is_found_under_its_new_name(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    store.streams.rename("out/counts", "out/sums")
    with pytest.raises(InvalidSql, match=r"renamed to 'out/sums'.*anabranch alias out/counts out/sums$"):
        run(store, COUNTS, name="p", spark=spark)
    schema = store.streams.get("out/sums").schema
    store.streams.create("out/counts", schema=schema.columns, key=schema.key, time=schema.time)
    with pytest.raises(InvalidArgument, match=r"renamed to 'out/sums'\. .*anabranch alias out/counts out/sums"):
        run(store, COUNTS, name="p", spark=spark)
    store.streams.delete("out/counts")
    store.aliases.add("out/sums", "out/counts")
    put(store, range(30, 60))
    once(store, COUNTS, "p", spark)
    assert counted(store) == expected(store, until=54)


@pytest.mark.slow
def test_late_events_that_were_deleted_begin_again(spark: SparkSession, store: ab.Store) -> None:
    once(store, COUNTS, "p", spark)
    store.streams.delete("out/counts_late")
    put(store, range(30, 60))
    once(store, COUNTS, "p", spark)
    assert rows(store, "out/counts_late") == []
    store.streams.delete("out/counts_late")
    own_stream(store, "out/counts_late")
    with pytest.raises(InvalidArgument, match="'out/counts_late' is not the stream"):
        run(store, COUNTS, name="p", spark=spark)


def test_a_missing_source_is_refused_before_the_pipeline_is_known(spark: SparkSession, store: ab.Store) -> None:
    store.streams.delete(SOURCE)
    with pytest.raises(InvalidSql, match="stream 'iot/sensors' not found") as refused:
        run(store, COUNTS, name="p", spark=spark)
    assert isinstance(refused.value.__cause__, StreamNotFound)
    assert pipeline_admin.pipelines(store) == []
