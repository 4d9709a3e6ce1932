"""Pipelines from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
        assert sensors.refused("pipeline", verb, "nope").startswith("there is no pipeline 'nope'")


def test_a_file_that_makes_no_sense_is_refused_before_spark_starts(sensors: Line, tmp_path: Path, file: Path) -> None:
    assert "can't be read" in sensors.refused("pipeline", "run", tmp_path / "nope.sql")
    file.write_text("\n\nCREATE STREAM x AS SELECT 1")
    assert "line 3" in sensors.refused("pipeline", "run", file)
    file.write_text(SQL)
    assert "is no place in a stream" in sensors.refused("pipeline", "run", file, "--from", "nowhere")
    assert "--by is append or event" in sensors.refused("pipeline", "run", file, "--by", "nope")
    assert "replace goes with a place" in sensors.refused("pipeline", "run", file, "--replace")
    assert sensors("pipeline", "list", "--json").json == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.process
def test_a_pipeline_runs_once_is_listed_and_reset(sensors: Line, file: Path) -> None:
    done = sensors.process("pipeline", "run", file, "--once", "--collect", "--json")
    assert done.code == 0, done.err
    rows = sorted((row["closed"], row["device"], row["events"]) for row in map(json.loads, done.out.splitlines()))
    assert rows == [("2026-01-01T00:00:01.000000Z", "a", 1)]
    (listed,) = sensors("pipeline", "list", "--json").json
    assert (listed["name"], listed["state"]) == ("means", "stopped")
    assert "iot/means" in sensors("pipeline", "list").out
    shown = sensors("pipeline", "show", "means").out
    assert SQL.splitlines()[2] in shown
    assert sensors("pipeline", "show", "means", "--json").json["progress"][0]["read"] == 3
    assert sensors("pipeline", "stop", "means", "--json").json["state"] == "stopped"
    assert "iot/means is deleted" in sensors("pipeline", "reset", "means", "--drop-results").err
    assert sensors.refused("read", "iot/means") == "there is no stream 'iot/means'"
    assert sensors("check").code == 0
