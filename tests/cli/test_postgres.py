"""A walk through the command line with a store whose catalog is in PostgreSQL and whose blobs are in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import CSV, SCHEMA, Line, column, environment
from tests.postgres_server import drop, fresh_url


class PostgresLine(Line):
    """The command line over a PostgreSQL store."""

    def __init__(self, url: str, blobs: Path) -> None:
        self.url, self.blobs = url, blobs

    def __call__(self, *arguments: object, stdin: str | bytes = b"", code: int | None = 0):  # type: ignore[no-untyped-def]
        self.store = self.url  # type: ignore[assignment]
        return super().__call__("--blobs", self.blobs, *arguments, stdin=stdin, code=code)


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresLine]:
    for name in ("ANABRANCH_STORE", "ANABRANCH_BLOBS"):
        monkeypatch.delenv(name, raising=False)
    url = fresh_url()
    yield PostgresLine(url, tmp_path / "blobs")
    drop(url)


def test_every_noun_works_over_postgres(line: PostgresLine, tmp_path: Path) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    file = tmp_path / "sensors.csv"
    file.write_text(CSV)
    line("write", "iot/sensors", "--create", file)
    assert column(line("read", "iot/sensors", "--json").rows, "celsius") == [1.5, 2.5, 3.5]
    line("stream", "scale", "iot/sensors", "--segments", "2")
    assert line("stream", "show", "iot/sensors", "--json").json["segments_open"] == 2
    asked = line("query", "SELECT count(*) AS n FROM iot.sensors", "--json")
    assert column(asked.rows, "n") == [3]
    line("compact")
    line("check")
    assert column(line("stream", "list", "--json").json, "name") == ["iot/sensors"]
    line("stream", "delete", "iot/sensors", "--yes")
    assert line("stream", "list", "--json").json == []


@pytest.mark.spark
@pytest.mark.slow  # tests/cli/test_pipeline.py runs one on SQLite
def test_a_pipeline_runs_and_is_known_afterwards(line: PostgresLine, tmp_path: Path) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    file = tmp_path / "sensors.csv"
    file.write_text(CSV)
    line("write", "iot/sensors", "--create", file)
    text = tmp_path / "warm.sql"
    text.write_text("CREATE STREAM iot.warm WITH (key = device) AS SELECT device, celsius FROM STREAM iot.sensors;")
    line.store = line.url  # type: ignore[assignment]
    done = line.process("pipeline", "run", text, "--once", "--quiet", env=environment(ANABRANCH_BLOBS=str(line.blobs)))
    assert done.code == 0, done
    assert sorted(column(line("read", "iot/warm", "--json").rows, "celsius")) == [1.5, 2.5, 3.5]
    assert column(line("pipeline", "list", "--json").json, "state") == ["stopped"]
    assert (line.blobs / "pipelines" / "warm").is_dir()
    line("pipeline", "reset", "warm", "--yes", "--drop-results")
    assert not (line.blobs / "pipelines" / "warm").exists()


def test_names_need_no_blobs_and_events_do(line: PostgresLine) -> None:
    line("scope", "create", "iot")
    line("stream", "create", "iot/raw")
    bare = Line(line.url)  # type: ignore[arg-type]
    assert column(bare("stream", "list", "--json").json, "name") == ["iot/raw"]
    assert "pass their address" in bare.refused("read", "iot/raw")


def test_a_verb_that_only_looks_makes_no_catalog(line: PostgresLine) -> None:
    for verb in (("scope", "list"), ("read", "a/b"), ("pipeline", "list")):
        assert "no store found" in line.refused(*verb)
