"""Provides a SPARK_HOME that makes Spark's Python workers start faster.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on its workers' import path. Python compiles modules from a zip
again in every process: 0.6 s of processor time, and a streaming query needs about ten processes before its first
result. The installed package is the same code, compiled once. So workers get a SPARK_HOME without that zip.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from anabranch.spark.session.cache import cache_folder

__all__ = ["ensure_home", "homes"]

# The folders that Spark's launcher and the JVM look for: all of a pip-installed pyspark except its Python code.
_PARTS: Final = ("bin", "data", "jars", "licenses", "sbin")


def ensure_home() -> Path | None:
    """Set the environment's SPARK_HOME to a folder of links to the installed pyspark, kept in the user's cache folder.
    Returns the folder.

    Does nothing and returns None if SPARK_HOME is already set, if workers run another Python than this one, or if such
    a folder can't be created. Spark then works as usual.
    """
    if os.environ.get("SPARK_HOME") or os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return None
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not (installed / "python" / "lib" / "pyspark.zip").exists():
        return None
    try:
        home = _linked(installed)
    except (OSError, RuntimeError):  # no cache folder, or a file system without links
        return None
    os.environ["SPARK_HOME"] = str(home)
    return home


def homes() -> Path:
    """The folder of all such folders. Raises RuntimeError without a home folder of the user."""
    return cache_folder() / "spark"


def _linked(installed: Path) -> Path:
    home = homes() / hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        if (installed / part).exists():
            _link(home / part, installed / part)
    return home


def _link(link: Path, target: Path) -> None:
    """Atomically point `link` at `target`; safe if other processes do the same."""
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
