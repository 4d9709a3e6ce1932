"""A function of a WebAssembly module over a column, and a filtered aggregate that a broker runs near the data, beside reading
all events through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import pyarrow as pa
import wasmtime

import anabranch as ab
from anabranch.query import Query
from anabranch.remote.query import query
from anabranch.runtime.tasks import ThreadTasks
from anabranch.wasm.check import check_module
from anabranch.wasm.engine import WasmEngine
from anabranch.wasm.function import WasmFunction
from bench.measure import in_turn, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess

_LOOP = """
  (func (export "{name}") (param $batch i32) (result i32) (local $in i32) (local $out i32) (local $end i32)
    (local.set $out (i32.load offset=8 (local.get $batch)))
    (local.set $in (i32.load offset=24 (local.get $batch)))
    (local.set $end (i32.add (local.get $in) (i32.shl (i32.load (local.get $batch)) (i32.const 3))))
    (block $done
      (loop $row
        (br_if $done (i32.ge_u (local.get $in) (local.get $end)))
        {store}
        (local.set $in (i32.add (local.get $in) (i32.const 8)))
        (local.set $out (i32.add (local.get $out) (i32.const {width})))
        (br $row)))
    (i32.const 0))
"""
_SCORE = "(f64.store (local.get $out) (f64.add (f64.mul (f64.load (local.get $in)) (f64.const 1.8)) (f64.const 32)))"
_HOT = "(i32.store8 (local.get $out) (f64.gt (f64.load (local.get $in)) (f64.const 0.99)))"
_MODULE = f"""(module
  (memory (export "memory") 64)
  (global $top (mut i32) (i32.const 1024))
  (func (export "alloc") (param $bytes i32) (result i32) (local $at i32)
    (local.set $at (global.get $top))
    (global.set $top (i32.and (i32.add (i32.add (local.get $at) (local.get $bytes)) (i32.const 7)) (i32.const -8)))
    (local.get $at))
  {_LOOP.format(name="score", store=_SCORE, width=8)}
  {_LOOP.format(name="hot", store=_HOT, width=1)})"""
_SIGNATURES = ("score(x double) -> double", "hot(x double) -> boolean")
_ROWS_OF_A_CALL = 65_536
_SQL = "SELECT count(*) AS n, avg(x) AS x FROM bench.numbers WHERE wasm.hot(x)"


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """The same column for all: numbers between 0 and 1, of which 1 % pass the filter."""
    return [_called(setting), _in_a_query(setting), _through_a_broker(setting)]


def _called(setting: BenchmarkSetting) -> Result:
    calls = setting.scaled(200, 20)
    values = np.linspace(0, 1, _ROWS_OF_A_CALL)
    column = pa.chunked_array([pa.array(values)])
    engine, code = WasmEngine(ThreadTasks()), bytes(wasmtime.wat2wasm(_MODULE))
    score = WasmFunction(engine, engine.compile(code), check_module(engine, code, _SIGNATURES)[0])

    def rate(work: Callable[[], object]) -> float:
        return calls * _ROWS_OF_A_CALL / seconds(lambda: [work() for _ in range(calls)]) / 1e6

    assert np.allclose(score([column]).to_numpy(), values * 1.8 + 32)
    rounds = in_turn(
        setting.scaled(9, 3), lambda: rate(lambda: score([column])), lambda: rate(lambda: pa.array(values * 1.8 + 32))
    )
    engine.close()
    return Result(
        "queries_near_data",
        "a module's function over a column, x · 1.8 + 32",
        "M rows/s",
        median(rounds.ours),
        median(rounds.other),
        "numpy",
        rounds.ratio,
        rounds.spread,
        Target(Bound.AT_LEAST, 100, absolute=True),
        (f"{_ROWS_OF_A_CALL:,} rows a call, copied in and out, with the limits of instructions and time on",),
    )


def _in_a_query(setting: BenchmarkSetting) -> Result:
    rows = setting.scaled(10_000_000, 500_000)
    with _store(setting, rows) as store, Query(store) as engine:

        def rate(sql: str) -> float:
            def ask() -> None:
                result = engine.run(sql)
                assert result is not None
                list(result)

            return rows / seconds(ask) / 1e6

        module, plain = (f"SELECT sum({each}) FROM bench.numbers" for each in ("wasm.score(x)", "x * 1.8 + 32"))
        rate(module)
        rounds = in_turn(setting.scaled(5, 1), lambda: rate(module), lambda: rate(plain))
    return Result(
        "queries_near_data",
        "a query that sums a module's function",
        "M rows/s",
        median(rounds.ours),
        median(rounds.other),
        "the same formula in SQL",
        rounds.ratio,
        rounds.spread,
        notes=(f"{rows:,} rows; DuckDB hands over 2,048 rows at a time, and Python's lock lets one thread do so",),
    )


def _through_a_broker(setting: BenchmarkSetting) -> Result:
    rows = setting.scaled(10_000_000, 500_000)
    _store(setting, rows).close()
    moved: dict[str, int] = {}
    with (
        ServedProcess.broker(setting.folder / "numbers") as broker,
        ab.connect(broker.addresses["flight"]) as store,
    ):

        def near() -> None:
            batches = list(query(store, _SQL))  # type: ignore[arg-type] # the store of a broker
            moved["near"] = sum(batch.nbytes for batch in batches)

        def far() -> None:
            moved["far"] = count = 0
            with store.reader("bench/numbers", columns=["x"]) as reader:
                for batch in reader.batches():
                    moved["far"] += batch.nbytes
                    count += int((batch.column("x").to_numpy() > 0.99).sum())

        near()
        rounds = in_turn(setting.scaled(5, 1), lambda: rows / seconds(near) / 1e6, lambda: rows / seconds(far) / 1e6)
    return Result(
        "queries_near_data",
        "a filtered aggregate that a broker runs, with a module as its filter",
        "M rows/s",
        median(rounds.ours),
        median(rounds.other),
        "reading the column through the broker, and filtering it here",
        rounds.ratio,
        rounds.spread,
        notes=(
            f"{rows:,} rows, on one machine: a network only slows the other side down",
            f"bytes of the batches that were received: {moved['near']:,}, beside {moved['far']:,}",
        ),
    )


def _store(setting: BenchmarkSetting, rows: int) -> ab.Store:
    place = setting.folder / "numbers"
    known = place.exists()
    store = ab.connect(place, create=True)
    if not known:
        store.write("bench/numbers", pa.table({"x": np.linspace(0, 1, rows)}), create=True)
        store.modules.add("numbers", bytes(wasmtime.wat2wasm(_MODULE)), signatures=_SIGNATURES)
    return store


FIGURE = Benchmark("queries_near_data", "code of WebAssembly modules near the data", run)
