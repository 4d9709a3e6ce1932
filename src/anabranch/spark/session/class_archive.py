"""Java's class data sharing for Spark: the classes that a session needs, parsed and verified once, in a file that later Java
processes map into memory. A session then starts with half of the processor time (3.7 instead of 7.4 s on two cores).

Java checks that the file fits: its own build, the jars with their times, the class path. If not, it starts without it."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch.spark.session.home import homes

__all__ = ["UNFINISHED", "archive_options", "class_archive", "remove_outdated", "writing_options"]

UNFINISHED: Final = ".classes-"  # begins the names of folders in which archives are written

# Otherwise Java reports each class that it leaves out, and why a file does not fit.
_QUIET: Final = "-Xlog:cds*=off"
_ABANDONED_S: Final = 3600.0  # far longer than writing one takes
_CALLERS_OWN: Final = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare:off")


def class_archive() -> Path | None:
    """Where the archive for this environment's JAVA_HOME and SPARK_HOME is kept, whether it exists or not. Another Java
    or Spark has another path. None if SPARK_HOME is not a folder of links that `ensure_home` makes, or has a space in
    its path."""
    java, spark = os.environ.get("JAVA_HOME"), os.environ.get("SPARK_HOME")
    if java is None or spark is None or " " in spark:
        return None
    try:
        if Path(spark).parent != homes():
            return None
        command = Path(os.environ.get("JAVA_LAUNCHER_RUNS") or Path(java, "bin", "java")).resolve()
        made_for = [f"{each} {each.stat().st_mtime_ns}" for each in (command, Path(spark, "jars").resolve())]
    except (OSError, RuntimeError):
        return None
    return Path(spark) / f"classes-{hashlib.sha256(' '.join(made_for).encode()).hexdigest()[:16]}.jsa"


def archive_options(java_options: str) -> str:
    """The options by which Java uses the archive; none if there is no archive, or `java_options` name another."""
    archive = class_archive()
    if archive is None or not archive.exists() or any(each in java_options for each in _CALLERS_OWN):
        return ""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def writing_options(file: Path) -> str:
    """The options by which Java writes the classes that it has loaded to `file` when it ends."""
    return f"-XX:ArchiveClassesAtExit={file} {_QUIET}"


def remove_outdated(archive: Path) -> None:
    """Remove the archives beside this one, those of Sparks that were uninstalled, and unfinished ones of killed
    processes."""
    for other in archive.parent.parent.glob("*/classes-*.jsa"):
        if other != archive and (other.parent == archive.parent or not (other.parent / "jars").exists()):
            other.unlink(missing_ok=True)
    for abandoned in archive.parent.glob(f"{UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - abandoned.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(abandoned, ignore_errors=True)
