"""`anabranch key` and `--keys`: from a new key to one that took over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Line


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ANABRANCH_KEYS", raising=False)
    return tmp_path / "river.keys"


def test_a_store_is_made_with_keys_and_opens_with_them_alone(
    line: Line, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line("key", "new", keys, "--id", "first")
    assert keys.stat().st_mode & 0o777 == 0o600
    assert keys.read_text().startswith("first ")
    line("--keys", f"file:{keys}", "scope", "create", "iot")
    line("--keys", f"file:{keys}", "stream", "create", "iot/raw")
    line("--keys", f"file:{keys}", "write", "iot/raw", "--create", "-", stdin="one\ntwo\n")
    assert "key 'first' was not given" in line.refused("read", "iot/raw")
    monkeypatch.setenv("ANABRANCH_KEYS", f"file:{keys}")
    assert [row["payload"] for row in line("read", "iot/raw").rows] == ["one", "two"]
    monkeypatch.setenv("MY_KEYS", keys.read_text())
    monkeypatch.setenv("ANABRANCH_KEYS", "env:MY_KEYS")
    assert len(line("read", "iot/raw").rows) == 2


def test_a_new_key_takes_over_and_the_old_one_may_go(line: Line, keys: Path) -> None:
    given = ("--keys", f"file:{keys}")
    line("key", "new", keys, "--id", "first")
    line(*given, "scope", "create", "iot")
    line(*given, "stream", "create", "iot/raw")
    line(*given, "write", "iot/raw", "--create", "-", stdin="one\n")
    line("key", "new", keys, "--id", "second")
    assert [row["master_key"] for row in line("key", "show", "--json").json] == ["first"]
    assert line(*given, "key", "rotate", "--json").json["rewrapped"] == 1
    assert [(row["master_key"], row["current"]) for row in line("key", "show", "--json").json] == [
        ("second", False),
        ("second", True),
    ]
    keys.write_text(keys.read_text().splitlines()[0])
    assert [row["payload"] for row in line(*given, "read", "iot/raw").rows] == ["one"]
    assert keys.read_text().split()[1] not in line("key", "show").out


def test_what_can_not_be_done_with_keys_is_said(line: Line, keys: Path, tmp_path: Path) -> None:
    line("scope", "create", "iot")
    assert line("key", "show").err == "this store is not encrypted\n"
    line("key", "new", keys, "--id", "first")
    assert "first" in line.refused("key", "new", keys, "--id", "first")
    assert "not a key id" in line.refused("key", "new", keys, "--id", "no id")
    assert "--keys" in line.refused("key", "rotate")
    assert "not encrypted" in line.refused("--keys", f"file:{keys}", "key", "rotate")
    assert "can't be read" in line.refused("--keys", f"file:{tmp_path / 'gone'}", "check")
    keys.chmod(0o644)
    assert "chmod 600" in line.refused("--keys", f"file:{keys}", "check")


def test_what_is_no_regular_file_is_not_replaced_by_one(line: Line, keys: Path) -> None:
    keys.symlink_to("/dev/null")
    assert "expected a regular file" in line.refused("key", "new", keys)
    assert keys.is_symlink()
