"""The SPARK_HOME without Python's zip, from which Spark's workers start faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.spark.session.home import WORKER_SERVER, ensure_home, leave_home


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv(WORKER_SERVER, raising=False)  # of this process's Spark session, if another test has begun one


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


def test_a_session_of_a_cluster_leaves_it() -> None:
    assert ensure_home() is not None
    leave_home()
    assert "SPARK_HOME" not in os.environ and "PYSPARK_PYTHON" not in os.environ


def test_what_the_user_has_set_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    leave_home()
    assert (os.environ["SPARK_HOME"], os.environ["PYSPARK_PYTHON"]) == ("/opt/spark", sys.executable)


def test_without_a_place_for_it_spark_works_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert ensure_home() is None
    assert os.environ["SPARK_HOME"] == ""


def test_the_command_for_python_runs_another_daemon_and_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = ensure_home()
    assert home is not None
    command = Path(os.environ["PYSPARK_PYTHON"])
    assert command.parent == home and os.access(command, os.X_OK)
    echo = tmp_path / "echo python"  # a path that a shell would divide
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    command.write_text(command.read_text().replace(sys.executable, f"'{echo}'"))
    assert _output(command, "-m", "pyspark.daemon", "pyspark.kind") == "-m|anabranch.spark.session.daemon|pyspark.kind|"
    assert _output(command, "-m", "pyspark.worker", "a b") == "-m|pyspark.worker|a b|"
    monkeypatch.setenv("SPARK_HOME", "")
    assert ensure_home() == home  # and it was mended
    assert _output(command, "-c", "import sys; print(sys.executable)") == f"{sys.executable}\n"


def _output(command: Path, *arguments: str) -> str:
    return subprocess.run([command, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
