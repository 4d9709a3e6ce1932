"""Modules on the command line, and their functions in queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch import connect
from anabranch.errors import ModuleFailed, QueryLimitExceeded
from anabranch.query import Query, QueryLimits
from tests.cli.kit import Line
from tests.wasm_modules import ENDLESS, FAHRENHEIT, IS_HOT, SCORE, SPREAD_OF, each_row, heat, module, spread


@pytest.fixture
def hot(sensors: Line, tmp_path: Path) -> Line:
    """The sensors, and the module `heat` with `score` and `hot`."""
    (tmp_path / "heat.wasm").write_bytes(heat())
    sensors("modules", "add", "heat", tmp_path / "heat.wasm", "--signature", SCORE, "--signature", IS_HOT)
    return sensors


def ask(line: Line, sql: str) -> list[object]:
    return line("query", sql).rows


def test_a_query_calls_functions_of_modules(hot: Line) -> None:
    assert ask(hot, "SELECT device, wasm.score(celsius) AS f FROM iot.sensors ORDER BY f") == [
        {"device": "a", "f": 34.7},
        {"device": "b", "f": 36.5},
        {"device": "a", "f": 38.3},
    ]
    assert ask(hot, "SELECT device FROM iot.sensors WHERE hot(celsius) ORDER BY 1") == [
        {"device": "a"},
        {"device": "b"},
    ]
    assert ask(hot, 'SELECT sum("wasm"."score" ( celsius + 1 )) AS s FROM iot.sensors') == [{"s": 114.9}]
    assert ask(hot, "SELECT WASM.Score(1) AS a, Wasm.score(NULL) AS b") == [{"a": 33.8, "b": None}]
    assert ask(
        hot, "WITH q AS (SELECT score(celsius) AS x FROM iot.sensors) SELECT score(max(x)) > 100 AS y FROM q"
    ) == [{"y": True}]
    assert hot("query", "SELECT score(celsius) FROM iot.sensors LIMIT 0").rows == []


def test_a_query_calls_aggregates_of_modules(sensors: Line, tmp_path: Path) -> None:
    (tmp_path / "spread.wasm").write_bytes(spread())
    sensors("modules", "add", "spread", tmp_path / "spread.wasm", "--signature", SPREAD_OF)
    assert ask(sensors, "SELECT device, wasm.spread(celsius) AS s FROM iot.sensors GROUP BY 1 ORDER BY 1") == [
        {"device": "a", "s": 2.0},
        {"device": "b", "s": 0.0},
    ]
    assert ask(sensors, "SELECT spread(celsius) AS s FROM iot.sensors WHERE celsius > 1.5") == [{"s": 1.0}]
    assert ask(sensors, "SELECT spread(celsius) AS s FROM iot.sensors WHERE celsius > 9") == [{"s": None}]
    assert ask(sensors, "SELECT spread(i) AS s FROM range(10000) t(i) HAVING spread(i) > 1") == [{"s": 9999.0}]
    groups = (
        "SELECT count(*) AS n, sum(s) AS s FROM (SELECT wasm.spread(i) AS s FROM range(100000) t(i) GROUP BY i % 5000)"
    )
    assert ask(sensors, groups) == [{"n": 5000, "s": 5000 * 95000.0}]


def test_a_function_of_duckdb_keeps_its_name(sensors: Line, tmp_path: Path) -> None:
    (tmp_path / "m.wasm").write_bytes(module(FAHRENHEIT.replace('"score"', '"round"')))
    sensors("modules", "add", "m", tmp_path / "m.wasm", "--signature", "round(x double) -> double")
    assert ask(sensors, "SELECT round(1.2) AS a, wasm.round(1.0) AS b") == [{"a": 1.0, "b": 33.8}]


def test_modules_are_listed_shown_and_removed(hot: Line, tmp_path: Path) -> None:
    listed = hot("modules", "list").out.splitlines()
    assert listed[0].split() == ["MODULE", "VERSION", "BYTES", "FUNCTION"]
    assert [line.split(maxsplit=3) for line in listed[1:]] == [
        ["heat", "1", str(len(heat())), SCORE],
        ["heat", "1", str(len(heat())), IS_HOT],
    ]
    (tmp_path / "heat.wat").write_text(f'(module (memory (export "memory") 1) (@custom "anabranch" "{SCORE}")'
        ' (func (export "alloc") (param i32) (result i32) (i32.const 8))'
        ' (func (export "score") (param i32) (result i32) (i32.const 0)))')  # fmt: skip
    assert "module 'heat': version 2 has " + SCORE in hot("modules", "add", "heat", tmp_path / "heat.wat").err
    shown = hot("modules", "show", "heat", "--json").json
    assert [(each["number"], each["functions"]) for each in shown] == [(1, [SCORE, IS_HOT]), (2, [SCORE])]
    assert hot("modules", "list", "--json").json == shown[1:]
    assert "version" in hot("modules", "show", "heat").out.lower()
    hot("modules", "remove", "heat", "--yes")
    assert hot("modules", "list", "--json").json == []
    assert "Function with name score does not exist" in hot.refused(
        "query", "SELECT wasm.score(celsius) FROM iot.sensors"
    )
    assert "module 'heat' not found" in hot.refused("modules", "show", "heat")


def test_files_that_are_no_module_are_refused(sensors: Line, tmp_path: Path) -> None:
    assert "the module can't be read" in sensors.refused("modules", "add", "m", tmp_path / "none.wasm")
    (tmp_path / "m.wasm").write_bytes(b"MZ")
    assert "not a WebAssembly module" in sensors.refused("modules", "add", "m", tmp_path / "m.wasm")
    (tmp_path / "m.wat").write_text("(module\n (func (export")
    assert "is not WebAssembly as text" in sensors.refused("modules", "add", "m", tmp_path / "m.wat")
    (tmp_path / "m.wasm").write_bytes(heat())
    assert "functions are missing" in sensors.refused("modules", "add", "m", tmp_path / "m.wasm")


def test_a_query_with_a_module_that_misbehaves_ends_with_one_line(hot: Line, tmp_path: Path) -> None:
    (tmp_path / "bad.wasm").write_bytes(module(ENDLESS.replace('"score"', '"bad"')))
    hot("modules", "add", "bad", tmp_path / "bad.wasm", "--signature", "bad(x double) -> double")
    told = hot.refused("query", "SELECT wasm.bad(celsius) FROM iot.sensors")
    assert told.startswith("the module's function bad failed: it was stopped: it used all its instructions")
    told = hot.refused("query", "SELECT wasm.score(device) FROM iot.sensors")
    assert "wasm.score(VARCHAR)" in told and '"wasm.score"(col0 DOUBLE' in told


def test_a_query_goes_on_after_one_whose_function_failed(hot: Line) -> None:
    with connect(hot.store) as store:
        store.modules.add("bad", module(each_row("bad", "unreachable", into=8)), signatures=["bad(x double) -> double"])
        with Query(store) as query:
            with pytest.raises(ModuleFailed) as failed:
                list(query.run("SELECT bad(celsius) FROM iot.sensors") or ())
            assert failed.value.function == "bad"
            found = query.run("SELECT count(*) AS n FROM iot.sensors WHERE hot(celsius)")
            assert found is not None and [batch.to_pylist() for batch in found] == [[{"n": 2}]]


def test_the_next_query_uses_the_new_version(hot: Line) -> None:
    def asked(query: Query) -> object:
        found = query.run("SELECT max(wasm.score(celsius)) AS x FROM iot.sensors")
        assert found is not None
        return [row["x"] for batch in found for row in batch.to_pylist()]

    with connect(hot.store) as store, Query(store) as query:
        assert asked(query) == [38.3]
        twice = each_row(
            "score", "(f64.store (local.get $out) (f64.mul (f64.load (local.get $in)) (f64.const 2)))", into=8
        )
        store.modules.add("heat", module(twice), signatures=[SCORE])
        assert asked(query) == [7.0]


def test_a_query_is_stopped_at_its_deadline_inside_a_function(hot: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.limits.MODULE_CALL_INSTRUCTIONS", 1 << 50)
    monkeypatch.setattr("anabranch.wasm.instance.CALL_TICKS", 100_000)
    monkeypatch.setattr("anabranch.wasm.engine.CALL_TICKS", 100_000)
    with connect(hot.store) as store:
        store.modules.add("heat", module(ENDLESS), signatures=[SCORE])
        with Query(store, limits=QueryLimits(seconds=0.5)) as query, pytest.raises(QueryLimitExceeded, match="after 0"):
            list(query.run("SELECT score(celsius) FROM iot.sensors") or ())
