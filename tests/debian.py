"""Programs of Debian's packages, unpacked once into the cache folder of the user. Nothing is installed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_DOWNLOAD_S = 300


def debian_folder(name: str, *packages: str) -> Path:
    """The folder below which the packages' files are. Skips the test where there is no apt, and fails it where apt can't
    get the packages."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            pytest.skip(f"{packages[0]} is taken from Debian: {program} not found")
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch-tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be unpacking the same
        if not (folder / "complete").exists():
            _unpack(folder, packages)
    return folder


def _unpack(folder: Path, packages: tuple[str, ...]) -> None:
    got = _run(["apt-get", "download", *packages], folder)
    if got.returncode:  # the lists of packages are missing or old
        _run(["apt-get", "update"], folder)
        got = _run(["apt-get", "download", *packages], folder)
    if got.returncode:
        pytest.fail(f"apt-get can't get {' '.join(packages)}: {got.stderr[-300:]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
        package.unlink()
    (folder / "complete").touch()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
