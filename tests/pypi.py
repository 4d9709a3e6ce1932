"""Packages of PyPI that only one test needs, kept out of the environment: installed once into the cache folder of the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_INSTALL_S = 300


def pypi_folder(name: str, *packages: str) -> Path:
    """The folder with the packages, for PYTHONPATH. Skips the test where pip can't install them."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch-tests" / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "--upgrade", *packages]
        made = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        if made.returncode:
            pytest.skip(f"pip can't install {packages[0]}: {made.stderr[-300:]}")
        (folder / "complete").touch()
    return folder
