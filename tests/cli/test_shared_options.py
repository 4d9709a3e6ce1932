"""Options that every verb takes, before it or behind it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.commands import app
from anabranch.cli.verbs import ROOT_OPTIONS
from tests.cli.kit import Line
from tests.cli.test_help import VERBS

ROOT = Path(__file__).parents[2]
PLACES = ("--blobs", "--history", "--keys")

SHARED = [option for option in ROOT_OPTIONS if option.variable and option.flag != "--store"]


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), prog_name="anabranch")
    assert done.exit_code == code, done
    return str(done.stdout if code == 0 else done.stderr)


def options(path: tuple[str, ...]) -> set[str]:
    return {name for parameter in VERBS[path].params for name in parameter.opts}


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_verb_takes_what_stands_before_it_behind_it_too(path: tuple[str, ...]) -> None:
    own = options(path)
    assert "--debug" in own
    if "--store" in own and path != ("demo",):  # which has a store of its own
        assert own >= {option.flag for option in SHARED}
        shown = run(*path, "--help")
        assert all(option.flag in shown and option.variable in shown for option in SHARED)


def test_a_store_with_its_places_and_keys_said_behind_the_verb(tmp_path: Path) -> None:
    keys = tmp_path / "river.keys"
    run("key", "new", keys)
    places = ("--store", tmp_path / "river", "--blobs", tmp_path / "bytes", "--history", tmp_path / "old")
    behind = (*places, "--keys", f"file:{keys}")
    run("scope", "create", "iot", *behind)
    run("stream", "create", "iot/raw", *behind)
    events = tmp_path / "events.txt"
    events.write_text("one\ntwo\n")
    run("write", "iot/raw", "--create", events, *behind)
    run("compact", "--force", *behind)
    assert list((tmp_path / "old").rglob("*.parquet"))
    assert not (tmp_path / "river" / "blobs").exists()
    assert run("read", "iot/raw", "--json", *behind).count("payload") == 2
    assert run(*behind, "read", "iot/raw", "--json") == run("read", "iot/raw", "--json", *behind)
    assert "key" in run("read", "iot/raw", *places, code=2)


def test_behind_the_verb_counts_more_than_before_it_and_both_more_than_the_environment(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = f"file:{tmp_path / 'right'}", f"file:{tmp_path / 'wrong'}"
    run("key", "new", tmp_path / "right")
    store = tmp_path / "sealed"
    run("scope", "create", "iot", "--store", store, "--keys", right)
    monkeypatch.setenv("ANABRANCH_KEYS", wrong)
    assert run("--store", store, "--keys", right, "check") == ""
    assert run("--store", store, "--keys", wrong, "check", "--keys", right) == ""
    assert "wrong" in run("--store", store, "check", code=2)
    assert "wrong" in run("--store", store, "--keys", right, "check", "--keys", wrong, code=2)
    monkeypatch.setenv("ANABRANCH_KEYS", right)
    assert run("--store", store, "check") == ""  # nothing is left of what was said before


def test_debug_behind_the_verb_shows_the_traceback(sensors: Line) -> None:
    assert "Traceback" in sensors("read", "iot/none", "--debug", code=2).err
    assert "Traceback" not in sensors("read", "iot/none", code=2).err


def test_every_environment_variable_is_documented() -> None:
    listed = subprocess.run(
        ["grep", "-rhoE", "ANABRANCH_[A-Z_]+[A-Z]", ROOT / "src"], check=True, capture_output=True, text=True
    )
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert set(listed.stdout.split()) == set(re.findall(r"ANABRANCH_[A-Z_]+[A-Z]", page))
