"""compact, collect and check from the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.kit import Line


def damage(file: Path) -> None:
    """Turn one bit of a file's last byte but some."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)


def blobs(line: Line) -> list[Path]:
    return sorted(path for path in (line.store / "blobs").rglob("*") if path.is_file())


def fill(line: Line) -> None:
    """Enough for a blob of its own: small commits live in the catalog."""
    line(
        "write",
        "iot/raw",
        "--create",
        "--format",
        "lines",
        stdin="x" * 99 + "\n" + "\n".join(f"{n:>99}" for n in range(2_000)),
    )


def test_compaction_says_what_it_did_and_changes_no_event(sensors: Line) -> None:
    fill(sensors)
    before = sensors("read", "iot/raw", "--meta").out
    assert "nothing is worth compacting yet" in sensors("compact").err
    assert "3 events" in sensors("compact", "iot/sensors", "--force").err
    told = sensors("compact", "--force", "--json").json
    assert (told["files"], told["events"]) == (1, 2_001)
    assert sensors("read", "iot/raw", "--meta").out == before
    assert sensors("collect", "--json").json["blobs_waiting"] == 1
    sensors("collect", "--grace", "0")
    assert sensors("collect", "--grace", "0", "--json").json["blobs_waiting"] == 0
    assert [path.suffix for path in blobs(sensors)] == [".parquet"] * 2
    assert sensors("read", "iot/raw", "--meta").out == before
    assert sensors("check").err == "all is well\n"


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "-1"])
def test_absurd_times_are_refused(sensors: Line, seconds: str) -> None:
    for verb in (("retain", "--every"), ("compact", "--every"), ("collect", "--every"), ("collect", "--grace")):
        assert verb[1] in sensors.refused(*verb, seconds)
    assert "--timeout" in sensors.refused("job", "wait", "3f9a61c02b7d", "--timeout", seconds)


def test_deleted_streams_give_their_bytes_back(sensors: Line) -> None:
    fill(sensors)
    sensors("stream", "delete", "iot/raw", "--yes")
    sensors("collect")
    sensors("collect", "--grace", "0")
    sensors("collect", "--grace", "0")
    assert blobs(sensors) == []


def test_check_finds_a_damaged_blob_and_says_where(sensors: Line) -> None:
    fill(sensors)
    damage(blobs(sensors)[0])
    found = sensors("check", code=1)
    assert "iot/raw" in found.out
    assert "checksum" in found.out
    assert found.err.endswith(" findings\n")
    told = sensors("check", "iot/raw", "--json", code=1).json
    assert told["ok"] is False
    assert told["findings"][0]["severity"] == "error"
    assert sensors("check", "iot/sensors", "--json").json == {"ok": True, "findings": []}
    assert sensors("check", "--fast").code == 0
    blobs(sensors)[0].unlink()
    assert "missing" in sensors("check", "--fast", code=1).out


def test_check_finds_a_catalog_that_is_none(line: Line) -> None:
    line.store.mkdir()
    (line.store / "catalog.db").write_bytes(os.urandom(8192))
    found = line("check", code=1)
    assert found.out.startswith("error: catalog: ")


def test_upkeep_of_an_unknown_stream_is_refused(sensors: Line) -> None:
    for verb in ("compact", "check"):
        assert sensors.refused(verb, "iot/nope") == "stream 'iot/nope' not found"
    assert "above 0" in sensors.refused("compact", "--every", "0")


def test_space_shows_what_keeps_unused_files_and_until_when(sensors: Line) -> None:
    fill(sensors)
    before = sensors("space", "--json").json
    assert before["pinned"] == []
    assert before["total"] == before["live"] == sum(path.stat().st_size for path in blobs(sensors))
    sensors("compact", "--force")
    (waiting,) = sensors("space", "--json").json["pinned"]
    assert (waiting["reason"], waiting["until"], waiting["live"]) == ("not collected yet", None, False)
    assert "anabranch space" in sensors("collect").err
    after = sensors("space", "--json").json
    (pinned,) = after["pinned"]
    assert (pinned["reason"], pinned["bytes"]) == ("grace time", waiting["bytes"])
    assert after["total"] == after["live"] + pinned["bytes"] == sum(path.stat().st_size for path in blobs(sensors))
    shown = sensors("space").out
    assert "grace time" in shown
    assert pinned["until"] in shown
    for _ in range(2):
        sensors("collect", "--grace", "0")
    freed = sensors("space", "--json").json
    assert freed["pinned"] == []
    assert freed["total"] == freed["live"] == sum(path.stat().st_size for path in blobs(sensors))
