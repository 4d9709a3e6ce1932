"""The command line over a broker: `--store anabranch://…` for its verbs, with the output that the store itself gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.kit import SCHEMA, Line
from tests.hosted import Hosted
from tests.server.kit import NO_GRPC, BrokerProcess
from tests.wasm_modules import ENDLESS, IS_HOT, SCORE, heat, module


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Line, Line]]:
    """The command line over a broker, and over the store that it serves."""
    folder = tmp_path_factory.mktemp("broker")
    own = Line(folder / "river")
    own("scope", "create", "iot")
    with BrokerProcess(own.store, *NO_GRPC, folder=folder) as broker:
        through: Line = Line(Path())
        through.store = broker.addresses["flight"]
        yield through, own


def test_streams_and_scopes_are_managed(lines: tuple[Line, Line]) -> None:
    broker, own = lines
    broker("scope", "create", "lab", "--tag", "owner=ann")
    broker("stream", "create", "lab/raw", "--schema", SCHEMA, "--key", "device", "--time", "at")
    own("write", "lab/raw", "--format", "csv", stdin="device,at,celsius\na,2026-01-01T00:00:00Z,1.5\n")
    broker("stream", "scale", "lab/raw", "--segments", "3")
    broker("copy", "lab/raw", "lab/copy")
    broker("alias", "lab/newest", "lab/copy")
    broker("stream", "truncate", "lab/copy", "--at", "tail", "--yes")
    broker("rename", "lab/copy", "lab/later")
    broker("append", "lab/raw", "lab/later")
    broker("stitch", "lab/raw", "lab/later", "--into", "lab/both")
    broker("scope", "copy", "lab", "lab2")
    broker("stream", "seal", "lab2/raw")
    for arguments in (
        ("stream", "list", "--json"),
        ("stream", "list", "lab", "--match", "l*"),
        ("stream", "show", "lab/raw", "--json"),
        ("stream", "show", "lab/newest"),
        ("scope", "list", "--json"),
        ("alias", "--list"),
        ("diff", "lab/raw", "lab/later", "--json"),
        ("cut", "lab/raw", "--at", "tail"),
        ("digest", "lab/both"),
        ("check",),
        ("job", "list"),
        ("txn", "list"),
        ("group", "list"),
        ("space", "--json"),
    ):
        told = own(*arguments, code=None)
        assert broker(*arguments, code=told.code) == told, arguments
    broker("scope", "delete", "lab2", "--recursive", "--yes")
    assert broker("scope", "list", "--json").json == own("scope", "list", "--json").json


def test_upkeep_and_places_of_the_server(lines: tuple[Line, Line], tmp_path: Path) -> None:
    broker, own = lines
    broker("stream", "create", "iot/kept")
    own("write", "iot/kept", stdin="a\nb\n")
    broker("compact", "--force")
    broker("collect")
    assert "1 stream" in broker("archive", "create", "iot/kept", tmp_path / "archive").err
    assert broker("backup", tmp_path / "backup", "--json").json


def test_an_error_of_the_broker_is_the_one_of_the_store(lines: tuple[Line, Line]) -> None:
    broker, own = lines
    for arguments in (
        ("stream", "create", "nowhere/x"),
        ("rename", "iot/none", "iot/z"),
        ("copy", "iot/none", "iot/y"),
    ):
        told = own(*arguments, code=None)
        assert told.code != 0
        assert broker(*arguments, code=told.code).err == told.err


def test_what_needs_the_catalog_says_so(lines: tuple[Line, Line]) -> None:
    broker, _ = lines
    for arguments in (("pipeline", "list"), ("token", "list")):
        assert "can't be done through a broker" in broker(*arguments, code=2).err


def test_a_broker_that_is_not_there_is_one_line(lines: tuple[Line, Line]) -> None:
    nowhere: Line = Line(Path())
    nowhere.store = "anabranch://user:hunter2@host"  # type: ignore[assignment]
    assert "hunter2" not in nowhere.refused("stream", "list")


def test_a_query_runs_in_the_broker_with_functions_of_modules(lines: tuple[Line, Line], tmp_path: Path) -> None:
    broker, own = lines
    own("write", "iot/heat", "--create", stdin='{"device": "a", "celsius": 1.5}\n{"device": "b", "celsius": 2.5}\n')
    (tmp_path / "heat.wasm").write_bytes(heat())
    (tmp_path / "bad.wasm").write_bytes(module(ENDLESS.replace('"score"', '"bad"')))
    broker("modules", "add", "heat", tmp_path / "heat.wasm", "--signature", SCORE, "--signature", IS_HOT)
    broker("modules", "add", "bad", tmp_path / "bad.wasm", "--signature", "bad(x double) -> double")
    for sql in (
        "SELECT device, wasm.score(celsius) AS f FROM iot.heat ORDER BY 1",
        "SELECT count(*) AS n, avg(celsius) AS c FROM iot.heat WHERE hot(celsius)",
        "SELECT device FROM iot.heat WHERE celsius > 100",
        "SHOW TABLES",
        "CREATE TABLE t AS SELECT 1",
        "CREATE MACRO twice(x) AS 2 * x",
    ):
        assert broker("query", sql) == own("query", sql), sql
    assert "modules list" in broker.refused("modules", "show", "none")
    assert broker("modules", "list") == own("modules", "list")
    told = broker.refused("query", "SELECT bad(celsius) FROM iot.heat")
    assert told == own.refused("query", "SELECT bad(celsius) FROM iot.heat")
    assert told.startswith("the module's function bad failed: it was stopped")
    assert broker("query", "SELECT hot(3.0) AS h").rows == [{"h": True}]
    assert "unknown stream or table" in broker.refused("query", "SELECT * FROM iot.none")
    files = "SELECT * FROM read_csv('/etc/passwd')"
    assert "--allow-files" in own.refused("query", files) and "--allow-files" not in broker.refused("query", files)
    assert "--allow-files" not in broker.refused("query", "SELECT current_setting('threads')")
    assert "--memory can't be used through a broker" in broker.refused("query", "SELECT 1", "--memory", "1GiB")
    broker("modules", "remove", "bad", "--yes")
    assert [each["module"] for each in own("modules", "list", "--json").json] == ["heat"]


def test_a_broker_translates_the_sql_of_other_systems(lines: tuple[Line, Line]) -> None:
    broker, own = lines
    own("write", "lab/heat", "--create", stdin='{"device": "a", "celsius": 1.5}\n{"device": "b", "celsius": 2.5}\n')
    for dialect, sql in (
        ("bigquery", "SELECT device, SAFE_CAST(device AS INT64) AS n FROM `lab.heat` ORDER BY device"),
        ("trino", "SELECT device, try_cast(celsius AS varchar) AS c FROM lab.heat ORDER BY 1"),
    ):
        found = broker("query", "--dialect", dialect, sql)
        assert len(found.rows) == 2
        assert found == own("query", "--dialect", dialect, sql)
    months = "SELECT 1,\n date_diff('month', celsius, celsius) FROM lab.heat"
    assert "line 2: DATE_DIFF in whole months" in broker.refused("query", "--dialect", "trino", months)
    for unknown in ("oracle", "örakel", ""):
        said = f"'{unknown}' is not a supported dialect"
        assert said in broker.refused("query", "--dialect", unknown, "SELECT 1")
        assert said in own.refused("query", "--dialect", unknown, "SELECT 1")


def test_results_of_queries_are_read(lines: tuple[Line, Line]) -> None:
    broker, own = lines
    with ab.connect(own.store) as store:
        store.queries.deploy("means", "…")
        assert "follow its results to wait for them" in broker.refused("queries", "results", "means")
        hosted = Hosted(store, "means")
        hosted.prepare("iot/means")
        hosted.create("iot/means")
        hosted.publish("iot/means", range(5))
    for options in (["--json"], ["--follow", "--limit", "5", "--format", "csv"]):
        found = broker("queries", "results", "means", *options).out
        assert found == own("queries", "results", "means", *options).out == own("read", "iot/means", *options).out
