"""The example module in AssemblyScript: what its functions make, and that it is built from its source."""

from __future__ import annotations

import json
import shutil
import subprocess
from math import exp, log
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.deployments.files import check_files
from anabranch.runtime.tasks import ThreadTasks
from anabranch.spark.pipelines.declared_functions.declared import check_code
from anabranch.spark.pipelines.plan import functions_of, plan
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.function import WasmTableFunction
from anabranch.wasm.signature import parse_signature
from tests.cli.kit import Line
from tests.npm import npm_folder

FOLDER = Path(__file__).parents[2] / "examples" / "assemblyscript"
SIGNATURES = (
    "dew_point(celsius double, humidity double) -> double",
    "station(name string) -> string",
    "aggregate geometric_mean(x double) -> double",
)
ROWS = (
    {"name": "North Gate", "celsius": 20.0, "humidity": 50.0},
    {"name": "north_gate", "celsius": 25.0, "humidity": 100.0},
    {"name": "Süd", "celsius": None, "humidity": 70.0},
)


@pytest.fixture
def weather(line: Line) -> Line:
    options = [word for signature in SIGNATURES for word in ("--signature", signature)]
    line("write", "iot/weather", "--create", stdin="".join(json.dumps(row) + "\n" for row in ROWS))
    line("modules", "add", "weather", FOLDER / "weather.wasm", *options)
    return line


def test_the_example_computes_text_numbers_and_aggregates(weather: Line) -> None:
    sql = """SELECT wasm.station(name) AS station, round(max(wasm.dew_point(celsius, humidity)), 2) AS dew,
        wasm.geometric_mean(humidity) AS mean FROM iot.weather GROUP BY 1 ORDER BY 1"""
    found = weather("query", sql).rows
    assert [(row["station"], row["dew"]) for row in found] == [("north-gate", 25.0), ("süd", None)]
    assert [row["mean"] for row in found] == pytest.approx([exp((log(50) + log(100)) / 2), 70.0])
    assert weather("query", "SELECT wasm.geometric_mean(humidity) AS m FROM iot.weather WHERE false").rows == [
        {"m": None}
    ]
    many = "SELECT count(DISTINCT station) AS n FROM (SELECT wasm.station('Gate ' || i) AS station FROM range(200000) t(i))"
    assert weather("query", many).rows == [{"n": 200_000}]


def test_the_example_refuses_with_its_reason(weather: Line) -> None:
    told = weather.refused("query", "SELECT wasm.dew_point(celsius, 101.0) FROM iot.weather")
    assert told == "the module's function dew_point failed: the humidity is above 0 and at most 100 percent"


def test_the_example_has_a_handler() -> None:
    signature = parse_signature("frost(name string, celsius double) -> table (name string, celsius double)")
    engine = WasmEngine(ThreadTasks())
    frost = WasmTableFunction(engine, engine.compile((FOLDER / "weather.wasm").read_bytes()), signature)
    batches = [
        pa.record_batch({"name": pa.array(names, pa.string()), "celsius": pa.array(celsius, pa.float64())})
        for names, celsius in (
            (["Süd", "a", None, "b"], [-1.5, 0.0, -2.0, None]),
            (["warm"], [9.0]),
            (["north gate"], [-0.5]),
        )
    ]
    found = pa.Table.from_batches(frost(batches), frost.schema)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("Süd", -1.5),
        ("", -2.0),
        ("north gate", -0.5),
        ("coldest", -2.0),
    ]
    assert [each.num_rows for each in frost(batches[1:2])] == [0, 0]
    assert list(frost(batches[:0])) == []
    sql = (FOLDER / "frost.sql").read_text()
    steps = plan(sql, {}, check_files({"weather.wasm": (FOLDER / "weather.wasm").read_bytes()}))
    check_code(functions_of(steps), {"weather.wasm": (FOLDER / "weather.wasm").read_bytes()})
    engine.close()


def test_a_stores_modules_have_no_handlers(weather: Line) -> None:
    signature = "frost(name string, celsius double) -> table (name string, celsius double)"
    told = weather.refused("modules", "add", "weather", FOLDER / "weather.wasm", "--signature", signature)
    assert told.startswith("frost returns a table, so it can only be the handler of a deployed query")


def test_the_readme_has_the_signatures() -> None:
    assert all(f"--signature '{signature}'" in (FOLDER / "README.md").read_text() for signature in SIGNATURES)


@pytest.mark.slow
@pytest.mark.process
def test_the_example_is_built_from_its_source(tmp_path: Path) -> None:
    npm = npm_folder("assemblyscript", "assemblyscript@0.28.20")
    for name in ("anabranch.ts", "weather.ts", "package.json"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(npm / "node_modules")
    subprocess.run(["npm", "run", "-s", "build"], cwd=tmp_path, check=True)
    assert (tmp_path / "weather.wasm").read_bytes() == (FOLDER / "weather.wasm").read_bytes()
