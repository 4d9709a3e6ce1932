"""The start of a pipeline, as far as it needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import PipelineFailed
from anabranch.spark.pipelines import run as module


class Hold:
    left = False

    def leave(self) -> None:
        self.left = True


def test_an_ephemeral_pipeline_whose_queries_do_not_start_holds_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold()

    def prepare(*_: Any, held: list[Hold], **_options: Any) -> dict[str, Any]:
        held.append(hold)
        return {}

    def fail(*_: Any, **_options: Any) -> None:
        raise RuntimeError("no thread can be started")

    for name, stand_in in {"plan": lambda *_: (), "prepare": prepare, "Pipeline": fail}.items():
        monkeypatch.setattr(module, name, stand_in)
    for name in ("install", "watch_java"):
        monkeypatch.setattr(module, name, lambda *_: None)
    with ab.connect(tmp_path / "store", create=True) as store:
        session: Any = object()
        with pytest.raises(PipelineFailed, match="no thread can be started"):
            module.run(store, "SELECT 1;", name="p", spark=session, ephemeral=True)
    assert hold.left


def test_a_file_is_read_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rollups (1).sql", "a;b", "plain"):
        Path(name).write_text("SELECT 1")
        assert module._read(name, None) == ("SELECT 1", Path(name).stem)
    for text in ("SELECT (1)", "SELECT\n1", "SELECT 1;", "SELECT 1" * 1_000, "SELECT '\0'"):
        assert module._read(text, "p") == (text, "p")
