"""`anabranch queries upgrade --replay`: which options go together, and waiting for a replay without a host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.catalog.state.codec import stream_id_text
from anabranch.catalog.state.pipeline import PIPELINE, Restart, StoredPipeline
from tests.cli.kit import Line

SQL = "CREATE STREAM out.means AS SELECT n FROM STREAM iot.numbers"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        made.queries.deploy("means", SQL)
        yield made


@pytest.mark.parametrize("options", [["--plan"], ["--restart-from", "tail"], ["--replace"]])
def test_a_replay_takes_no_options_of_an_upgrade_in_place(store: ab.Store, tmp_path: Path, options: list[str]) -> None:
    file, line = tmp_path / "means.sql", Line(Path(store.url))
    file.write_text(SQL)
    refused = line.refused("queries", "upgrade", "means", file, "--replay", "head", *options)
    assert "omit --restart-from, --replace and --plan" in refused
    assert "require --replay" in line.refused("queries", "upgrade", "means", file, "--drop")
    assert [info.name for info in store.queries.list()] == ["means"]


def test_a_replay_is_begun_without_waiting_and_dropping_asks(store: ab.Store, tmp_path: Path) -> None:
    file, line = tmp_path / "means.sql", Line(Path(store.url))
    file.write_text(SQL)
    verb = ("queries", "upgrade", "means", file, "--replay", "head", "--no-wait")
    assert "--yes" in line(*verb, "--drop", code=2).err
    assert "query 'means-replay-2': version 2 is waiting for a host" in line(*verb, "--drop", "--yes").err
    assert store.queries.get("means-replay-2").replaces == "means"
    assert "is being replayed by 'means-replay-2'" in line.refused(*verb)


def test_a_file_of_another_system_is_deployed_as_its_translation(store: ab.Store, tmp_path: Path) -> None:
    line, file, template = Line(Path(store.url)), tmp_path / "job.sql", tmp_path / "plain.sql"
    file.write_text("INSERT INTO out.hot SELECT n FROM iot.numbers WHERE n > 3;")
    translated = "CREATE STREAM out.hot AS\nSELECT\n  n\nFROM STREAM iot.numbers\nWHERE\n  n > 3;\n"
    line("queries", "deploy", "hot", file, "--dialect", "flink")
    assert [each.text for each in store.queries.versions("hot")] == [translated]
    template.write_text(translated)
    line("queries", "deploy", "hot", template)
    assert store.queries.get("hot").version == 1, "it is the same"
    planned = line("queries", "upgrade", "hot", file, "--dialect", "flink", "--plan", "--json").json
    assert [each["target"] for each in planned["statements"]] == ["out/hot"]
    file.write_text("SELECT n\nFROM iot.numbers")
    for verb in (("deploy", "hot"), ("upgrade", "hot"), ("validate",)):
        refused = line.refused("queries", *verb, file, "--dialect", "flink")
        assert refused.startswith("line 1: a pipeline must write to a stream")
    line("queries", "save-template", "kept", template)
    assert "a template has none" in line.refused("queries", "deploy", "x", "--template", "kept", "--dialect", "flink")
    assert "expected one of flink" in line.refused("queries", "deploy", "x", file, "--dialect", "oracle")


def test_a_deletion_with_results_names_all_streams_that_the_query_made(store: ab.Store) -> None:
    line, schema = Line(Path(store.url)), pa.schema([("n", pa.int64())])
    store.scopes.create("out")
    made = [store.streams.create(f"out/{name}", schema=schema).id for name in ("means", "means_v1")]
    row = StoredPipeline(
        "means", SQL, (), 1, True, Restart(), "stopped", 1, 2, 3, made=tuple(map(stream_id_text, made))
    )
    with store.catalog.writing("pipeline means") as txn:
        txn.put_state(PIPELINE, "means", row)
    assert "  made     out/means, out/means_v1" in line("queries", "show", "means").out
    asked = line("queries", "delete", "means", "--drop-results", code=2).err
    assert "Delete query 'means' with out/means, out/means_v1?" in " ".join(asked.split())
    assert "Delete query 'means'?" in line("queries", "delete", "means", code=2).err
    assert store.queries.get("means").wanted == "running"
    line("queries", "delete", "means", "--drop-results", "--yes")
    assert store.queries.get("means").wanted == "deleted"
