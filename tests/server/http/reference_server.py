"""A server of another project, run for a while to see what it answers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.waiting import PATIENCE_S, until


@contextmanager
def reference_server(
    command: Sequence[str], folder: Path, url: str, *, ready: str, status: int, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a server until the end, with its log in `folder`. It is up once the path `ready` has this status. Yields `url`."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        try:
            return httpx.get(f"{url}{ready}").status_code == status
        except httpx.TransportError:
            return False

    try:
        until(answers, PATIENCE_S)
        yield url
    finally:
        process.kill()
        process.wait(PATIENCE_S)
