"""The SPARK_HOME without Python's zip, from which Spark's workers start faster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from anabranch.spark.session.home import ensure_home


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


def test_the_home_has_all_of_spark_but_its_python(tmp_path: Path) -> None:
    home = ensure_home()
    assert home is not None and home.is_relative_to(tmp_path)
    assert os.environ["SPARK_HOME"] == str(home)
    assert (home / "bin" / "spark-submit").is_file()
    assert any((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()


def test_it_is_made_once_and_mended_when_it_points_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    home = ensure_home()
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to("/nowhere")
    monkeypatch.setenv("SPARK_HOME", "")
    assert ensure_home() == home
    assert (home / "jars").is_dir()


@pytest.mark.parametrize(("name", "value"), [("SPARK_HOME", "/opt/spark"), ("PYSPARK_PYTHON", "/usr/bin/other")])
def test_what_the_user_has_set_is_left_alone(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert ensure_home() is None
    assert os.environ[name] == value


def test_without_a_place_for_it_spark_works_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert ensure_home() is None
    assert os.environ["SPARK_HOME"] == ""
