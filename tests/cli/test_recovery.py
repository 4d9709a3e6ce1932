"""backup, restore, rebuild and check --repair from the command line; what a kill leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

from tests import catalog_file
from tests.cli.kit import Line
from tests.cli.test_maintain import blobs, damage, fill


def test_a_backup_is_restored_elsewhere(sensors: Line, tmp_path: Path) -> None:
    fill(sensors)
    before = sensors("read", "iot/raw", "--meta").out
    told = sensors("backup", tmp_path / "backup").err
    assert told.startswith("2 streams as of 20")
    assert "1 blob copied" in told
    again = sensors("backup", tmp_path / "backup", "--json").json
    assert (again["blobs"], again["blobs_reused"]) == (0, 1)
    copy = Line(tmp_path / "copy")
    assert "1 blob copied" in copy("restore", tmp_path / "backup").err
    assert copy("read", "iot/raw", "--meta").out == before
    assert copy("check").err == "all is well\n"
    assert "already" in copy.refused("restore", tmp_path / "backup")


def test_a_backup_says_what_it_needs(sensors: Line, tmp_path: Path) -> None:
    assert "--catalog-only" in sensors.refused("backup")
    assert "--catalog-only" in sensors.refused("backup", tmp_path / "b", "--catalog-only")
    assert "not part of a backup" in sensors.refused("backup", sensors.store)
    assert "no backup" in Line(tmp_path / "copy").refused("restore", sensors.store)
    assert "no store" in Line(tmp_path / "copy").refused("restore", tmp_path / "nowhere")


def test_a_lost_catalog_is_rebuilt(sensors: Line) -> None:
    fill(sensors)
    before = sensors("read", "iot/raw", "--meta").out
    assert "manifests/" in sensors("backup", "--catalog-only").err
    assert "is intact" in sensors.refused("rebuild")
    (sensors.store / "catalog.db").unlink()
    assert "anabranch rebuild" in sensors.refused("read", "iot/raw")
    told = sensors("rebuild").err
    assert "2 streams, 2,004 events, 1 blob" in told
    assert "unknown since then" in told
    assert sensors("read", "iot/raw", "--meta").out == before
    assert sensors("check").err == "all is well\n"
    assert "no rebuild left" not in sensors("rebuild", "--discard-newer", "--yes").err
    assert "no rebuild left" in sensors("rebuild", "--discard-newer", "--yes").err


def test_a_rebuild_reports_newer_and_damaged_blobs(sensors: Line) -> None:
    fill(sensors)
    sensors("backup", "--catalog-only")
    (old,) = (path for path in blobs(sensors) if path.suffix == ".arrow" and path.parent.name == "commits")
    sensors("write", "iot/raw", "--create", "--format", "lines", stdin="\n".join(f"{n:>99}" for n in range(1_000)))
    (sensors.store / "catalog.db").unlink()
    damage(old)
    found = sensors("rebuild", code=1)
    assert f"damaged: blob commits/{old.name}: " in found.out
    assert "1,000 events of iot/raw" in found.out
    assert "may hold events acknowledged" in found.err
    assert sensors("rebuild", "--force", "--yes", "--json", code=1).json["newer"][0]["events"] == 1_000


def test_without_a_manifest_there_is_nothing_to_rebuild_from(sensors: Line) -> None:
    (sensors.store / "catalog.db").unlink()
    assert "no manifest" in sensors.refused("rebuild")


def change(line: Line, statement: str) -> None:
    """Change the catalog behind the store's back."""
    catalog_file.change(line.store / "catalog.db", statement)


def test_what_can_be_repaired_is_and_the_rest_is_explained(sensors: Line) -> None:
    fill(sensors)
    before = sensors("read", "iot/raw", "--meta").out
    change(sensors, "update logs set size = size + 1, event_high = null")
    planned = sensors("check", "--repair", "--dry-run", code=1).out
    assert "would be repaired: log 1: it holds" in planned
    assert sensors("check", code=1).out == "".join(
        line for line in planned.splitlines(keepends=True) if line.startswith(("error", "warning"))
    )
    done = sensors("check", "--repair")
    assert "repaired: log 1: it holds" in done.out
    assert done.err == "all is well\n"
    assert sensors("check").err == "all is well\n"
    assert sensors("read", "iot/raw", "--meta").out == before
    damage(blobs(sensors)[0])
    left = sensors("check", "--repair", code=1)
    assert "left as it is: its events are lost unless" in left.out
    told = sensors("check", "--repair", "--json", code=1).json
    assert (told["ok"], told["repaired"]) == (False, [])
    assert all(finding["advice"] for finding in told["findings"])
    assert "--repair" in sensors.refused("check", "--dry-run")


def test_a_repair_of_no_catalog_says_what_helps(line: Line) -> None:
    line.store.mkdir()
    (line.store / "catalog.db").write_bytes(os.urandom(8192))
    assert "anabranch rebuild" in line("check", "--repair", code=1).out
