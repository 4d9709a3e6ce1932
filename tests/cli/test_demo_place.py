"""The store in the commands that the demo proposes."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli.demo.run import _shown_place


def test_the_store_is_shown_so_that_it_is_found_and_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert _shown_place(str(tmp_path / "inner" / "demo")) == "./demo"
    assert _shown_place(str(tmp_path / "demo")) == str(tmp_path / "demo")
    shown = _shown_place("postgresql://me:hunter2@db:5432/river")
    assert shown.startswith("postgresql://me") and shown.endswith("@db:5432/river") and "hunter2" not in shown
    assert _shown_place("memory://") == "memory://"
