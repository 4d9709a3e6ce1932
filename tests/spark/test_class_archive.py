"""The archive of Java's classes, with which sessions start faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from anabranch.spark.session.class_archive import (
    UNFINISHED,
    archive_options,
    class_archive,
    remove_outdated,
    writing_options,
)
from anabranch.spark.session.home import ensure_home
from anabranch.spark.session.java import ensure_java
from tests.waiting import until


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.delenv("JAVA_LAUNCHER_RUNS", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (tmp_path / "java" / "bin").mkdir(parents=True)
    (tmp_path / "java" / "bin" / "java").touch()


def archive() -> Path:
    ensure_home()
    found = class_archive()
    assert found is not None
    return found


def test_java_uses_an_archive_that_exists() -> None:
    assert archive_options("") == ""
    archive().touch()
    assert archive_options("-Xmx1g") == f"-XX:SharedArchiveFile={archive()} -Xlog:cds*=off"


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/mine", "-Xshare:off", writing_options(Path("/mine"))])
def test_a_callers_own_choice_stays(own: str) -> None:
    archive().touch()
    assert archive_options(f"-Xmx1g {own}") == ""


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    before = archive()
    os.utime(tmp_path / "java" / "bin" / "java", ns=(1, 1))
    assert archive() != before


@pytest.mark.parametrize("home", ["", "/opt/spark"])
def test_there_is_none_for_a_spark_of_the_users_own(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", home)
    assert class_archive() is None


def test_archives_that_are_outdated_are_removed() -> None:
    kept, other_java = archive(), archive().with_name("classes-0.jsa")
    uninstalled = kept.parent.with_name("0") / "classes-1.jsa"
    uninstalled.parent.mkdir()
    for each in (kept, other_java, uninstalled):
        each.touch()
    killed, being_written = (kept.with_name(f"{UNFINISHED}{name}") for name in ("killed", "now"))
    for folder in (killed, being_written):
        folder.mkdir()
    os.utime(killed, (0, 0))
    remove_outdated(kept)
    assert (kept.exists(), other_java.exists(), uninstalled.exists()) == (True, False, False)
    assert (killed.exists(), being_written.exists()) == (False, True)


SESSION = """
import sys
from anabranch.spark.session.session import session
spark = session(**{"spark.driver.extraJavaOptions": sys.argv[1]})
print(spark.range(3).count())
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.process
def test_a_session_takes_its_classes_from_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    ensure_java()
    prepared = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "queries", "prepare"], capture_output=True, text=True, check=True
    )
    assert f"Spark's classes are in {archive()}" in " ".join(prepared.stderr.split())
    written = archive().stat().st_mtime_ns
    # Under -Xshare:on Java ends if it can't use the file; and so it does with a file that is damaged.
    command = [sys.executable, "-c", SESSION, "-Xshare:on"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "3\n"
    subprocess.run([sys.executable, "-m", "anabranch.cli.main", "queries", "prepare"], check=True)
    assert archive().stat().st_mtime_ns == written
    archive().chmod(0o600)
    archive().write_bytes(b"damaged")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    command[-1] = "-Dnothing=special"
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "3\n"


PREPARING = """
import time
from anabranch.spark.queries.prepare import preparing_spark
with preparing_spark():
    print("preparing", flush=True)
    time.sleep(600)
"""


@pytest.mark.spark
@pytest.mark.process
def test_what_prepares_ends_with_the_process_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with subprocess.Popen([sys.executable, "-c", PREPARING], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "preparing\n"
        (preparing,) = psutil.Process(host.pid).children()
        until(lambda: any(temporary.glob("*/anabranch-*")))  # it has begun
        host.kill()
    until(lambda: not preparing.is_running() or preparing.status() == psutil.STATUS_ZOMBIE)
    assert not list((tmp_path / "cache").glob("**/*.jsa"))  # it did not end by itself
    assert not list(temporary.iterdir())
