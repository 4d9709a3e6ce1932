"""Runs the NEXMark queries over a store that `generate.py` filled, and compares each result with DuckDB's, row by row.

python examples/nexmark/check.py ./river [q5 q7 …]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

import anabranch as ab
from anabranch.spark import session
from anabranch.spark.pipelines.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent
QUERIES = tuple(sorted((path.stem for path in (FOLDER / "queries").glob("q*.sql")), key=lambda name: int(name[1:])))
_INPUTS = ("person", "auction", "bid", "side_input")


def check(
    store: ab.Store, query: str, spark: SparkSession
) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """Run a query over all events. Returns its rows and DuckDB's, each with how often it is there."""
    with run(store, FOLDER / "queries" / f"{query}.sql", spark=spark, once=True, flush=True) as pipeline:
        pipeline.await_termination()
        found = pipeline.collect(f"nexmark/{query}")
    return _rows(found), _rows(expected(store, query))


def expected(store: ab.Store, query: str) -> pa.Table:
    """DuckDB's result over the events of the store."""
    with duckdb.connect() as database:
        database.execute("SET timezone = 'UTC'")
        names = [each for each in (*_INPUTS, "q12_bids") if store.streams.exists(f"nexmark/{each}")]
        for name in names:
            database.register(name, _table(store, name))
        sql = (FOLDER / "duckdb" / f"{query}.sql").read_text(encoding="utf-8")
        return database.sql(sql).to_arrow_table()


def _table(store: ab.Store, name: str) -> pa.Table:
    with store.reader(f"nexmark/{name}") as reader:
        return pa.Table.from_batches(list(reader.batches()), schema=reader.schema)


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def main() -> None:
    """Check the queries that are named, else all."""
    path, *chosen = sys.argv[1:]
    spark, wrong = session(name="nexmark"), 0
    with ab.connect(path) as store:
        for query in chosen or QUERIES:
            begun = time.perf_counter()
            found, wanted = check(store, query, spark)
            wrong += found != wanted
            verdict = "equal" if found == wanted else f"DIFFERENT: {found - wanted} instead of {wanted - found}"
            print(f"{query:>4}: {found.total():>7,} rows, {time.perf_counter() - begun:5.1f} s, {verdict}", flush=True)
    spark.stop()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
