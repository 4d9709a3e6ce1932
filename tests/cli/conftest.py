from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import CSV, SCHEMA, Line


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """The command line over a store that does not exist yet."""
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    return Line(tmp_path / "river")


@pytest.fixture
def sensors(line: Line, tmp_path: Path) -> Line:
    """The same with the typed stream iot/sensors, which holds three events, and the empty raw one iot/raw."""
    line("scope", "create", "iot")
    line("stream", "create", "iot/sensors", "--schema", SCHEMA, "--key", "device", "--time", "at")
    line("stream", "create", "iot/raw")
    file = tmp_path / "sensors.csv"
    file.write_text(CSV)
    line("write", "iot/sensors", "--create", file)
    return line
