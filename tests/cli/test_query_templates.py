"""Templates of queries on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Line

GIVEN = ("source=iot/sensors", "target=iot/hot", "key=device", "time=at", "value=celsius", "above=30")
PARAMS = tuple(word for each in GIVEN for word in ("--param", each))


def test_templates_are_listed_and_shown(sensors: Line) -> None:
    listed = sensors("queries", "templates")
    assert "threshold_alert" in listed.out and "with the package" in listed.out
    shown = sensors("queries", "templates", "threshold_alert").out
    assert "greater values are passed on as 'high'" in shown and "CREATE STREAM :target" in shown
    text = sensors("queries", "templates", "threshold_alert", "--sql").out
    (as_json,) = [each for each in sensors("queries", "templates", "--json").json if each["name"] == "threshold_alert"]
    assert as_json["text"].strip() == text.strip()
    assert as_json["parameters"][0]["name"] == "source" and as_json["saved_at"] is None
    assert "template 'nothing' not found" in sensors.refused("queries", "templates", "nothing")


def test_a_query_is_deployed_with_a_template(sensors: Line) -> None:
    deploy = ("queries", "deploy", "hot", "--template", "threshold_alert")
    assert sensors(*deploy, *PARAMS, "--json").json["version"] == 1
    (version,) = sensors("queries", "versions", "hot", "--json").json
    assert version["parameters"] == dict(each.split("=") for each in GIVEN)
    assert "CREATE STREAM :target" in version["text"]
    assert "line 2: these parameters have no default, so they need values: source (the st" in sensors.refused(*deploy)
    assert "no parameter 'size'" in sensors.refused(*deploy, *PARAMS, "--param", "size=1")
    assert "'source' is of type STREAM, not 'sensors'" in sensors.refused(*deploy, *PARAMS, "--param", "source=sensors")
    assert "pass either a file of statements or --template" in sensors.refused("queries", "deploy", "hot")
    assert sensors("queries", "upgrade", "hot", "--template", "threshold_alert", "--json").json["version"] == 1


def test_templates_are_saved_and_removed(sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.sql").write_text(
        "-- Mine.\nDECLARE PARAMETER out STREAM;\nCREATE STREAM :out AS SELECT at FROM STREAM iot.sensors"
    )
    assert sensors("queries", "save-template", "mine", "mine.sql", "--json").json["description"] == "Mine."
    assert (
        sensors("queries", "deploy", "q", "--template", "mine", "--param", "out=iot/a", "--json").json["version"] == 1
    )
    assert "comes with the package" in sensors.refused("queries", "save-template", "rollup", "mine.sql")
    assert "--yes" in sensors.refused("queries", "remove-template", "mine")
    sensors("queries", "remove-template", "mine", "--yes")
    assert "not found" in sensors.refused("queries", "deploy", "q", "--template", "mine")
