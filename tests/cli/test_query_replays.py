"""`anabranch queries upgrade --replay`: which options go together, and waiting for a replay without a host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
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
