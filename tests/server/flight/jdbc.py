"""The JDBC driver of Arrow's Flight SQL, kept outside the repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.maven import maven_repository

_VERSION: Final = "18.3.0"
_ARTIFACT: Final = "flight-sql-jdbc-driver"
_PROGRAM: Final = Path(__file__).parent / "java" / "Jdbc.java"


def driver() -> Path:
    """The driver's jar. Skips the test where there is no Java, no Maven, or the jar can't be had."""
    for needed in ("java", "mvn"):
        if shutil.which(needed) is None:
            pytest.skip(f"needs {needed} on the PATH")
    cache = maven_repository()
    jar = cache / "org/apache/arrow" / _ARTIFACT / _VERSION / f"{_ARTIFACT}-{_VERSION}.jar"
    if not jar.exists():
        artifact = f"-Dartifact=org.apache.arrow:{_ARTIFACT}:{_VERSION}"
        command = ["mvn", "-q", "-B", "dependency:get", artifact, "-Dtransitive=false", f"-Dmaven.repo.local={cache}"]
        try:
            got = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{_ARTIFACT} {_VERSION} could not be fetched within 120 s")
        if got.returncode or not jar.exists():
            pytest.skip(f"{_ARTIFACT} {_VERSION} could not be fetched: {(got.stdout + got.stderr)[-300:]}")
    return jar


def run(jar: Path, port: int, user: str, password: str) -> subprocess.CompletedProcess[str]:
    """What the program in Java prints."""
    url = f"jdbc:arrow-flight-sql://127.0.0.1:{port}"
    options = ["-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Duser.timezone=UTC"]
    command = ["java", *options, "-cp", str(jar), str(_PROGRAM), url, user, password]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
