"""The NEXMark queries of `examples/nexmark`: each result is exactly that of DuckDB over the same events."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidSql
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_FOLDER = Path(__file__).parents[2] / "examples" / "nexmark"
_PLAIN = ("q3", "q13")  # a join without bound, and one with a table


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"nexmark_{name}", _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_CHECK = _module("check")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ab.Store]:
    with ab.connect(tmp_path_factory.mktemp("nexmark") / "river", create=True) as opened:
        assert _module("generate").generate(opened, events=5_000) == {"person": 100, "auction": 300, "bid": 4_600}
        yield opened


@pytest.mark.parametrize(
    "query", [pytest.param(each, marks=() if each in _PLAIN else (pytest.mark.slow,)) for each in _CHECK.QUERIES]
)
def test_a_query_gives_what_duckdb_gives(spark: SparkSession, store: ab.Store, query: str) -> None:
    found, expected = _CHECK.check(store, query, spark)
    assert found == expected
    assert found


def test_every_query_is_there() -> None:
    assert tuple(f"q{number}" for number in range(24)) == _CHECK.QUERIES


def test_what_spark_refuses_is_one_clear_error(spark: SparkSession, store: ab.Store) -> None:
    won = pa.schema([("id", pa.int64()), ("seller", pa.int64()), ("expires", TIME_TYPE), ("price", pa.int64())])
    if not store.streams.exists("nexmark/q6_won"):
        store.streams.create("nexmark/q6_won", schema=won, key="id", time="expires")
    sql = (_FOLDER / "refused" / "q6.sql").read_text(encoding="utf-8").replace("nexmark.q6 ", "nexmark.refused ")
    with pytest.raises(InvalidSql, match=r"[Ww]indow function is not supported"):
        run(store, sql, name="refused", spark=spark, once=True)
    assert not store.streams.exists("nexmark/refused")
