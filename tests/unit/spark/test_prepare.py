"""The process that writes the archive of Java's classes while a host runs."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from anabranch.spark.queries import prepare
from tests.waiting import until


def test_a_process_that_has_prepared_spark_is_no_zombie_while_the_block_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ensure_java", "ensure_home"):
        monkeypatch.setattr(prepare, name, lambda: None)
    monkeypatch.setattr(prepare, "class_archive", lambda: tmp_path / "none")
    monkeypatch.setattr(sys, "executable", "true")  # ends at once
    before = {each.pid for each in psutil.Process().children()}
    with prepare.preparing_spark():
        until(lambda: {each.pid for each in psutil.Process().children()} <= before)
    assert {each.pid for each in psutil.Process().children()} <= before
