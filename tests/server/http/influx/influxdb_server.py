"""A real InfluxDB 1.6.7, which says what a statement returns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian import debian_folder
from tests.ports import free_port
from tests.server.http.reference_server import reference_server


def influx_programs() -> Path:
    """The folder with `influxd` and the client `influx`."""
    return debian_folder("influxdb-1.6.7", "influxdb", "influxdb-client") / "usr" / "bin"


@contextmanager
def influxdb(folder: Path) -> Iterator[str]:
    """The URL of a server with its data in `folder`."""
    programs, port = influx_programs(), free_port()
    settings = {
        "HTTP_BIND_ADDRESS": f"127.0.0.1:{port}",
        "HTTP_LOG_ENABLED": "false",
        "BIND_ADDRESS": f"127.0.0.1:{free_port()}",
        "META_DIR": str(folder / "meta"),
        "DATA_DIR": str(folder / "data"),
        "DATA_WAL_DIR": str(folder / "wal"),
        "REPORTING_DISABLED": "true",
        "MONITOR_STORE_ENABLED": "false",
    }
    environment = {**os.environ, **{f"INFLUXDB_{name}": value for name, value in settings.items()}}
    url = f"http://127.0.0.1:{port}"
    with reference_server(
        [str(programs / "influxd")], folder, url, ready="/ping", status=204, env=environment
    ) as answering:
        yield answering
