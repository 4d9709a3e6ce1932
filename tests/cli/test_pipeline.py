"""Pipelines from the command line, as far as that starts no Spark; `spark/test_pipeline_command.py` runs one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.state.codec import stream_id_text
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.plan import plan
from tests.cli.kit import Line

SQL = """\
CREATE STREAM iot.means WITH (key = device, time = closed, watermark = '1 second') AS
SELECT window.end AS closed, device, count(*) AS events
FROM STREAM iot.sensors GROUP BY window(at, '1 second'), device;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline over iot/sensors."""
    path = tmp_path / "means.sql"
    path.write_text(SQL)
    return path


def test_what_never_ran_is_unknown(sensors: Line) -> None:
    assert sensors("pipeline", "list", "--json").json == []
    assert sensors("pipeline", "list").out.startswith("PIPELINE")
    for verb in ("show", "stop", "reset"):
        assert sensors.refused("pipeline", verb, "nope").startswith("pipeline 'nope' not found")


def test_a_file_that_makes_no_sense_is_refused_before_spark_starts(sensors: Line, tmp_path: Path, file: Path) -> None:
    assert "can't be read" in sensors.refused("pipeline", "run", tmp_path / "nope.sql")
    file.write_text("\n\nCREATE STREAM x AS SELECT 1")
    assert "line 3" in sensors.refused("pipeline", "run", file)
    file.write_text(SQL)
    assert "is not a position in a stream" in sensors.refused("pipeline", "run", file, "--from", "nowhere")
    assert "expected --by append or --by event" in sensors.refused("pipeline", "run", file, "--by", "nope")
    assert "replace requires a place" in sensors.refused("pipeline", "run", file, "--replace")
    assert sensors("pipeline", "list", "--json").json == []


def finished_row(sensors: Line, *, target_id: str | None, made: tuple[str, ...] = (), late: int = 0) -> None:
    """The row of a pipeline `means` that has ended, as a run leaves it."""
    with ab.connect(sensors.store, create=True) as store:
        outputs = [replace(step.output, late=None, target_id=target_id) for step in plan(SQL)]
        me, now = row_of.this_process("me"), store.runtime.clock.now()
        row_of.claim(store.catalog, "means", SQL, outputs, me, now=now)
        row_of.save(store.catalog, replace(row_of.find(store.catalog, "means"), outputs=tuple(outputs), prepared=True))
        row_of.record_created(store.catalog, "means", me, made)
        told = {"target": "iot/means", "state": "ended", "run_read": 100, "run_late": late, "keeps_late": True}
        row_of.finish(store.catalog, "means", me, now=now, progress=[told])


def test_a_run_that_lost_many_events_is_shown_with_a_warning(sensors: Line) -> None:
    finished_row(sensors, target_id=None, late=61)
    assert "warning: iot/means: 61 of 100 events that this run read (61%)" in sensors("pipeline", "show", "means").out
    assert sensors("pipeline", "show", "means", "--json").json["progress"][0]["run_late"] == 61


def test_only_what_a_pipeline_made_is_deleted_and_the_rest_is_said_to_stay(sensors: Line) -> None:
    sensors("stream", "create", "iot/means")
    finished_row(sensors, target_id=None)
    kept = "iot/means is kept: this pipeline did not make it"
    assert kept in sensors("pipeline", "reset", "means", "--drop-results", "--yes").err
    with ab.connect(sensors.store, create=True) as store:
        ident = stream_id_text(store.streams.get("iot/means").id)
    finished_row(sensors, target_id=ident)
    assert kept in sensors("pipeline", "delete", "means", "--drop-results", "--yes").err
    sensors("stream", "create", "iot/earlier")
    with ab.connect(sensors.store) as store:
        earlier = stream_id_text(store.streams.get("iot/earlier").id)
    finished_row(sensors, target_id=ident, made=(ident, earlier))
    sensors("rename", "iot/means", "iot/averages")
    deleted = sensors("pipeline", "delete", "means", "--drop-results", "--yes").err
    assert "iot/averages is deleted" in deleted
    assert "iot/earlier is deleted" in deleted
    assert "is kept" not in deleted
    assert sensors("pipeline", "list", "--json").json == []


def test_the_same_file_under_another_name_is_refused_before_spark_starts(
    sensors: Line, tmp_path: Path, file: Path
) -> None:
    sensors("stream", "create", "iot/means")
    with ab.connect(sensors.store, create=True) as store:
        finished_row(sensors, target_id=stream_id_text(store.streams.get("iot/means").id))
    again = file.rename(tmp_path / "again.sql")
    refused = sensors.refused("pipeline", "run", again)
    assert refused.startswith("pipeline 'means' already writes to 'iot/means'")
    assert "--name means" in refused and "--also" in refused
    assert [row["name"] for row in sensors("pipeline", "list", "--json").json] == ["means"]
