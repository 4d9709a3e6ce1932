"""The program of a Kubernetes API server, built once from Go's modules into the cache folder of the user."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_VERSION: Final = "1.36.3"
_PROGRAM: Final = Path(__file__).parent / "go" / "kube_apiserver.go"
_FETCH_S: Final = 300
_BUILD_S: Final = 2400  # it has 2,100 packages: ten minutes of processor time
# Debugging symbols and frequent garbage collections would take a third longer.
_BUILD: Final = ("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o")


def kube_apiserver() -> Path:
    """The program. Skips the test where Go is missing or too old, its modules can't be fetched, or the build takes too long;
    Go keeps what was built, and the next run goes on from there."""
    for program in ("go", "nice"):
        if shutil.which(program) is None:
            pytest.skip(f"kube-apiserver is built from its modules: {program} not found")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "anabranch-tests" / "kube-apiserver" / _VERSION
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / "kube-apiserver"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be building the same
        if not built.exists():
            shutil.copyfile(_PROGRAM, folder / "main.go")
            _write_module(folder)
            _go(folder, _FETCH_S, "go", "mod", "tidy")
            _go(folder, _BUILD_S, "nice", "-n", "19", *_BUILD, "new", ".")
            (folder / "new").rename(built)
    return built


def _write_module(folder: Path) -> None:
    """The file go.mod. The modules that Kubernetes develops together have numbers of their own, and are named in its file
    only as folders of its repository."""
    found = json.loads(_go(folder, _FETCH_S, "go", "mod", "download", "-json", f"k8s.io/kubernetes@v{_VERSION}"))
    together = re.findall(r"^\t(k8s\.io/\S+) => \./staging/", Path(found["GoMod"]).read_text(), re.MULTILINE)
    number = _VERSION.removeprefix("1")
    lines = ["module kubeapiserver", "go 1.26.0", f"require k8s.io/kubernetes v{_VERSION}"]
    lines += [f"replace {each} => {each} v0{number}" for each in together]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")


def _go(folder: Path, seconds: float, *command: str) -> str:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOGC": "400",
        "GOWORK": "off",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"kube-apiserver {_VERSION}: {' '.join(command)} took more than {seconds:g} s")
    if done.returncode:
        pytest.skip(f"kube-apiserver {_VERSION} can't be built: {(done.stdout + done.stderr)[-300:]}")
    return done.stdout
