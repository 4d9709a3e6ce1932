"""Damage, limits and refusals: each is one clear line and exit code 2, and nothing written before is lost."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from tests import catalog_file
from tests.cli.kit import Line
from tests.cli.test_maintain import blobs, damage, fill


@pytest.mark.parametrize(
    "verb",
    [
        ("read", "iot/nope"),
        ("write", "iot/nope"),
        ("stream", "show", "iot/nope"),
        ("stream", "seal", "iot/nope"),
        ("stream", "scale", "iot/nope", "--segments", "2"),
        ("stream", "truncate", "iot/nope", "--at", "tail"),
        ("stream", "delete", "iot/nope"),
        ("compact", "iot/nope"),
    ],
)
def test_an_unknown_stream(sensors: Line, verb: tuple[str, ...]) -> None:
    advice = "; to create the stream, pass --create" if verb[0] == "write" else ""
    assert sensors.refused(*verb) == f"stream 'iot/nope' not found{advice}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("strem", "list"), "no such command 'strem'. Did you mean 'stream'?; see: anabranch --help"),
        (("scope", "lst"), "no such command 'lst'. Did you mean 'list'?; see: anabranch scope --help"),
        (("read",), "missing argument 'STREAM'; see: anabranch read --help"),
        (("read", "a/b", "--nope"), "no such option: --nope"),
        (("stream", "create", "iot/x", "--segments", "many"), "invalid value for '--segments': 'many' is not a valid"),
    ],
)
def test_a_slip_of_the_keyboard_is_one_line_too(sensors: Line, given: tuple[str, ...], told: str) -> None:
    assert sensors.refused(*given).startswith(told)


def test_a_corrupt_and_a_missing_blob(sensors: Line) -> None:
    fill(sensors)
    damage(blobs(sensors)[0])
    for verb in (("read", "iot/raw"), ("query", "SELECT max(payload) FROM iot.raw")):
        assert "is corrupt" in sensors.refused(*verb)
    blobs(sensors)[0].unlink()
    for verb in (("read", "iot/raw"), ("query", "SELECT max(payload) FROM iot.raw")):
        assert "is missing" in sensors.refused(*verb)
    assert len(sensors("read", "iot/sensors").rows) == 3


def test_a_damaged_parquet_file(sensors: Line) -> None:
    fill(sensors)
    sensors("compact", "--force")
    for blob in blobs(sensors):
        if blob.suffix == ".parquet":
            damage(blob)
    for verb in (("read", "iot/raw"), ("query", "SELECT max(payload) FROM iot.raw")):
        assert "is corrupt" in sensors.refused(*verb)


def test_a_store_of_a_newer_release(sensors: Line) -> None:
    catalog_file.change(sensors.store / "catalog.db", "pragma user_version = 999")
    for verb in (("stream", "list"), ("read", "iot/sensors"), ("write", "iot/sensors"), ("check",)):
        told = sensors.refused(*verb)
        assert "has format 999" in told
        assert told.endswith("Please upgrade anabranch")


def test_a_file_that_is_no_catalog(line: Line) -> None:
    line.store.mkdir()
    (line.store / "catalog.db").write_bytes(b"no database at all, but long enough for a header " * 20)
    assert "damaged" in line.refused("stream", "list")
    catalog_file.change(line.store / "other.db", "create table t (a)")
    (line.store / "other.db").replace(line.store / "catalog.db")
    assert "not an Anabranch catalog" in line.refused("read", "iot/sensors")


def test_a_store_that_is_a_file_or_lies_in_one(line: Line, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for store, why in ((tmp_path / "file", "is a file"), (tmp_path / "file" / "river", "can't be created")):
        assert why in line.refused("scope", "create", "iot", "--store", store)
        assert ("is a file" if why == "is a file" else "no store found in") in line.refused(
            "scope", "list", "--store", store
        )
    assert "is not the address of a store" in line.refused("read", "a/b", "--store", "ftp://nowhere")


def _obey_permissions() -> None:
    """Have the process about to start obey the permissions of files, even where it belongs to root."""
    drop_from_bounding_set, overrides = 24, (1, 2)  # PR_CAPBSET_DROP; CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    for capability in overrides:
        ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_folder_that_may_not_be_written(sensors: Line) -> None:
    everything = [sensors.store, *sensors.store.rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        for verb in (("write", "iot/sensors"), ("read", "iot/sensors"), ("stream", "list"), ("scope", "create", "x")):
            done = sensors.process(*verb, stdin=b'{"device":"x"}\n', preexec_fn=_obey_permissions)
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
            assert "can't be written" in done.err or "can't be opened" in done.err
    finally:
        for path in everything:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert len(sensors("read", "iot/sensors").rows) == 3


def test_debug_shows_where_an_error_comes_from(line: Line) -> None:
    from typer.testing import CliRunner

    from anabranch.cli.commands import app

    done = CliRunner().invoke(app, ["--debug", "--store", str(line.store), "scope", "list"])
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert "Traceback" not in line("scope", "list", code=2).err


def test_a_catalog_that_is_gone_is_not_made_anew_over_its_blobs(sensors: Line) -> None:
    fill(sensors)
    (sensors.store / "catalog.db").unlink()
    for verb in (("scope", "create", "iot"), ("write", "iot/raw")):
        assert "damaged or missing, though there are blobs" in sensors.refused(*verb)
