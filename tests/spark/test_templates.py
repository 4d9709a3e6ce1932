"""Each template that comes with the package, run over a few events: its results are exactly those that were counted here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.deployments.templates.template import packaged
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import BASE, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

SCHEMA = pa.schema([("user-id", pa.string()), ("seen at", TIME_TYPE), ("celsius", pa.float64()), ("id", pa.int64())])
# The user, seconds since BASE, the value, and an id.
EVENTS: list[tuple[str, int, float | None, int]] = [
    ("a", 1, 20.0, 1),
    ("b", 2, 30.5, 2),
    ("a", 3, 40.0, 3),
    ("a", 3, 40.0, 3),  # sent again
    ("b", 5, None, 4),
    ("a", 9, 10.0, 1),  # the same id again, soon after
    ("a", 12, -1.0, 5),
    ("b", 14, 50.0, 6),
    ("b", 100, 31.0, 2),  # the same id, much later
]
NAMES = {"source": "web/page-views", "target": "out/results", "time": "seen at"}
LAST = 100


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as opened:
        opened.scopes.create("web")
        opened.streams.create("web/page-views", schema=SCHEMA, key="user-id", time="seen at")
        user, seconds, celsius, ident = (list(column) for column in zip(*EVENTS, strict=True))
        opened.write("web/page-views", pa.table([user, times(seconds), celsius, ident], schema=SCHEMA))
        yield opened


def times(seconds: list[int]) -> pa.Array:
    return pa.array([BASE + second * SECOND for second in seconds], TIME_TYPE)


def results(store: ab.Store, spark: SparkSession, template: str, **given: str) -> list[tuple[Any, ...]]:
    """The rows that a query of the template makes, in order, with times as seconds since BASE."""
    parameters: Mapping[str, str] = {**NAMES, **given}
    text = packaged()[template].text
    with run(store, text, name=template, spark=spark, once=True, flush=True, parameters=parameters) as pipeline:
        assert pipeline.await_termination(600)
    with store.reader("out/results") as reader:
        rows = [tuple(map(plain, event.body.values())) for event in reader]
    return sorted(rows, key=repr)


def plain(value: Any) -> Any:
    return (round(value.timestamp() * SECOND) - BASE) / SECOND if isinstance(value, datetime) else value


def test_count_per_window(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "count_per_window", key="user-id", size="10 seconds")
    assert found == [(0, 10, "a", 4), (0, 10, "b", 2), (10, 20, "a", 1), (10, 20, "b", 1), (100, 110, "b", 1)]
    info = store.streams.get("out/results")
    assert (info.schema.key, info.schema.time) == ("user-id", "closed")


def test_rollup(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "rollup", key="user-id", value="celsius", size="10 seconds")
    assert found == [
        (10, "a", 4, 10.0, 40.0, 27.5, 110.0),
        (10, "b", 1, 30.5, 30.5, 30.5, 30.5),
        (110, "b", 1, 31.0, 31.0, 31.0, 31.0),
        (20, "a", 1, -1.0, -1.0, -1.0, -1.0),
        (20, "b", 1, 50.0, 50.0, 50.0, 50.0),
    ]


def test_threshold_alert(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "threshold_alert", key="user-id", value="celsius", above="40", below="0")
    assert found == [("a", 12, -1.0, "low"), ("b", 14, 50.0, "high")]


def test_threshold_alert_with_one_bound(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "threshold_alert", key="user-id", value="celsius", above="30.5")
    assert found == [("a", 3, 40.0, "high"), ("a", 3, 40.0, "high"), ("b", 100, 31.0, "high"), ("b", 14, 50.0, "high")]


def test_deduplicate(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "deduplicate", key="id", within="20 seconds")
    assert found == sorted(
        [
            ("a", 1, 20.0, 1),
            ("b", 2, 30.5, 2),
            ("a", 3, 40.0, 3),
            ("b", 5, None, 4),
            ("a", 12, -1.0, 5),
            ("b", 14, 50.0, 6),
            ("b", 100, 31.0, 2),
        ],
        key=repr,
    )


def test_sessions(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "sessions", key="user-id", gap="10 seconds")
    assert found == [(1, 22, 12, "a", 5), (100, 110, 100, "b", 1), (2, 24, 14, "b", 3)]


def test_enrich(spark: SparkSession, store: ab.Store) -> None:
    schema = pa.schema([("user-id", pa.string()), ("since", TIME_TYPE), ("plan", pa.string())])
    store.streams.create("web/plans", schema=schema, key="user-id", time="since")
    store.write("web/plans", pa.table([["b", "a", "a"], times([5, 0, 9]), ["free", "trial", "paid"]], schema=schema))
    found = results(store, spark, "enrich", key="user-id", reference="web/plans", added="plan")
    assert found == sorted(
        [
            ("a", 1, 20.0, 1, "trial"),
            ("b", 2, 30.5, 2, None),
            ("a", 3, 40.0, 3, "trial"),
            ("a", 3, 40.0, 3, "trial"),
            ("b", 5, None, 4, "free"),
            ("a", 9, 10.0, 1, "paid"),
            ("a", 12, -1.0, 5, "paid"),
            ("b", 14, 50.0, 6, "free"),
            ("b", 100, 31.0, 2, "free"),
        ],
        key=repr,
    )


def test_top_k(spark: SparkSession, store: ab.Store) -> None:
    found = results(store, spark, "top_k", item="user-id", k="1", size="10 seconds")
    assert found[:2] == [(10, "a", 4), (110, "b", 1)]
    assert found[2:] in ([(20, "a", 1)], [(20, "b", 1)])


def test_every_template_has_a_test() -> None:
    assert {f"test_{name}" for name in packaged()} <= globals().keys()
    assert datetime.fromtimestamp(BASE / SECOND, UTC).second % 10 == 0
