"""The command line over a store whose bytes are in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import CSV, Line
from tests.s3_server import fresh_url


@pytest.mark.parametrize("tier", ["blobs", "history", "both"])
def test_verbs_work_over_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    for each in ("blobs", "history"):
        if tier in (each, "both"):
            monkeypatch.setenv(f"ANABRANCH_{each.upper()}", fresh_url())
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    rows = CSV + "c,2026-01-02T00:00:00Z,9.5\n" * 8_000  # too much for the catalog
    line("write", "iot/sensors", "--create", "-", "--format", "csv", "--key", "device", "--time", "at", stdin=rows)
    line("compact", "--force")
    line("collect")
    question = (
        "SELECT count(*) AS n, max(celsius) AS most FROM iot.sensors WHERE \"at\" > TIMESTAMPTZ '2026-01-01 00:00:00Z'"
    )
    assert line("query", question, "--format", "jsonl").rows == [{"n": 8002, "most": 9.5}]
    assert len(line("read", "iot/sensors", "--format", "jsonl").rows) == 8003
    line("check")
    local = {path.parent.name for path in tmp_path.rglob("*") if path.suffix in (".arrow", ".parquet")}
    # "blobs" alone takes both tiers with it.
    assert local == ({"commits"} if tier == "history" else set())


def test_a_store_of_two_places_is_backed_up_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_HISTORY", fresh_url())
    line = Line(tmp_path / "river")
    line("scope", "create", "iot")
    rows = CSV + "c,2026-01-02T00:00:00Z,9.5\n" * 8_000
    line("write", "iot/sensors", "--create", "-", "--format", "csv", "--key", "device", "--time", "at", stdin=rows)
    line("compact", "--force")
    line("write", "iot/sensors", "--create", "-", "--format", "csv", stdin=rows)
    copy = fresh_url()
    line("backup", copy)
    monkeypatch.setenv("ANABRANCH_HISTORY", fresh_url())
    other = Line(tmp_path / "other")
    other("restore", copy)
    assert len(other("read", "iot/sensors", "--format", "jsonl").rows) == 2 * 8003
    other("check")
    assert {path.parent.name for path in tmp_path.glob("other/**/*.parquet")} == set()


def test_a_missing_bucket_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_BLOBS", fresh_url(bucket="nobody-made-this"))
    said = Line(tmp_path / "river").refused("scope", "create", "iot")
    assert "bucket 'nobody-made-this' not found" in said
