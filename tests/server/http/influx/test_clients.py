"""InfluxDB's own clients work unchanged: the command `influx`, and PyPI's `influxdb`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pypi import pypi_folder
from tests.server.http.influx.influxdb_server import influx_programs
from tests.server.http.serving import Serving

pytestmark = pytest.mark.process


def influx(broker: Serving, *arguments: str) -> str:
    command = [str(influx_programs() / "influx"), "-host", "127.0.0.1", "-port", str(broker.port), "-database", "db"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_influx_inserts_and_queries(broker: Serving) -> None:
    influx(broker, "-execute", "INSERT shell,who=me value=1.5 1700000000000000000")
    assert influx(broker, "-format", "csv", "-execute", "SELECT * FROM shell").splitlines() == [
        "name,time,value,who",
        "shell,1700000000000000000,1.5,me",
    ]
    assert "shell" in influx(broker, "-execute", "SHOW MEASUREMENTS")
    shown = influx(broker, "-precision", "rfc3339", "-execute", "SELECT mean(used) FROM mem GROUP BY host")
    assert shown.startswith("name: mem\ntags: host=a\ntime") and "1970-01-01T00:00:00Z 43.5" in shown


def test_the_command_influx_imports_a_file(broker: Serving, tmp_path: Path) -> None:
    file = tmp_path / "points"
    file.write_text("# DDL\nCREATE DATABASE imported\n# DML\n# CONTEXT-DATABASE: imported\ncpu v=1 1\ncpu v=2 2000\n")
    influx(broker, "-import", "-path", str(file))
    assert influx(broker, "-format", "csv", "-database", "imported", "-execute", "SELECT v FROM cpu").count("cpu,") == 2


@pytest.mark.slow
def test_the_client_for_python_writes_and_queries(broker: Serving) -> None:
    folder = pypi_folder("influxdb-5.3.2", "influxdb==5.3.2")
    program = Path(__file__).parent / "python_client.py"
    done = subprocess.run(
        [sys.executable, str(program), str(broker.port), "token"],
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *("1.6.7", "True", "True", "[{'name': 'air'}]", "('air', {'room': 'hall'}) [21.0]"),
        *("[20.0, 20.0, 21.0, 21.0, 22.0, 22.0]", "['minutes']", "[21.0, 21.0]", "[]"),
    ]
