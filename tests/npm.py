"""Programs of npm's registry, installed once into the cache folder of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def npm_folder(name: str, *packages: str) -> Path:
    """The folder with the packages, installed if they are not there. Skips the test without node and npm, and where these
    can't install."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip(f"node and npm run {packages[0]}: not found")
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch-tests" / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        made = subprocess.run([npm, "install", "--ignore-scripts", *packages], cwd=folder, capture_output=True)
        if made.returncode:
            pytest.skip(f"npm can't install {packages[0]}: {made.stderr.decode()[-300:]}")
        (folder / "complete").touch()
    return folder
