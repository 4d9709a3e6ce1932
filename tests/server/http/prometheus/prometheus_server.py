"""A real Prometheus 2.42, which says what a query returns."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian import debian_folder
from tests.ports import free_port
from tests.server.http.reference_server import reference_server


@contextmanager
def prometheus(folder: Path, openmetrics: str) -> Iterator[str]:
    """The URL of a server that holds these samples, with its data in `folder`."""
    programs, port = debian_folder("prometheus-2.42", "prometheus") / "usr" / "bin", free_port()
    (folder / "samples").write_text(openmetrics)
    (folder / "settings.yml").write_text("global: {}\n")
    blocks = ["tsdb", "create-blocks-from", "openmetrics", str(folder / "samples"), str(folder / "data")]
    subprocess.run([str(programs / "promtool"), *blocks], check=True, capture_output=True)
    command = [
        str(programs / "prometheus"),
        f"--config.file={folder / 'settings.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=promql-at-modifier,promql-negative-offset",
    ]
    with reference_server(command, folder, f"http://127.0.0.1:{port}", ready="/-/ready", status=200) as url:
        yield url
