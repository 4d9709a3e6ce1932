"""Sketches that pipelines store are merged by queries, and answer what exact counting answers, within their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from anabranch.query import Query
from anabranch.sketches import bloom
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import BASE, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENTS = 6_000
SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("user", pa.string()), ("ms", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    """Events of two devices within ten minutes, each with a user and a duration."""
    with ab.connect(tmp_path / "river", create=True) as opened:
        opened.scopes.create("iot")
        opened.streams.create("iot/requests", schema=SCHEMA, key="device", time="at")
        with opened.writer("iot/requests") as writer:
            writer.write_batch(pa.table(events(), schema=SCHEMA))
        yield opened


def events() -> dict[str, list[Any]]:
    numbers = range(EVENTS)
    return {
        "device": [f"d{n % 2}" for n in numbers],
        "at": [BASE + n * SECOND // 10 for n in numbers],
        # d0 has the users u0, u2, … u1998, some often; d1 the odd ones of fewer.
        "user": [f"u{n % 2000 if n % 2 == 0 or n % 3 else 1}" for n in numbers],
        "ms": [n * 7919 % 10_007 for n in numbers],
    }


def asked(store: ab.Store, sql: str) -> list[dict[str, Any]]:
    with Query(store) as query:
        result = query.run(sql)
        assert result is not None
        return [row for batch in result for row in batch.to_pylist()]


def test_sketches_of_windows_are_merged_over_any_range(spark: SparkSession, store: ab.Store) -> None:
    sql = """
        CREATE STREAM iot.sketches WITH (key = device) AS
        SELECT window.end AS closed, device, hll_sketch_agg(user) AS users, theta_sketch_agg(user) AS theta,
               kll_sketch_agg_bigint(ms) AS durations, approx_top_k_accumulate(user, 48) AS frequent,
               count_min_sketch(user, 0.02d, 0.95d, 1) AS counts, bloom_sketch_agg(user) AS members
        FROM STREAM iot.requests GROUP BY window(at, '1 minute'), device
    """
    assert run(store, sql, name="sketches", spark=spark, once=True, flush=True).await_termination(240)
    found = asked(
        store,
        """
        SELECT device, count(*) AS windows, hll_sketch_estimate(hll_union_agg(users)) AS hll,
               theta_sketch_bounds(theta_union_agg(theta), 3) AS theta,
               kll_sketch_get_n_bigint(kll_merge_agg_bigint(durations)) AS n,
               kll_sketch_get_quantile_bigint(kll_merge_agg_bigint(durations), 0.5) AS median,
               approx_top_k_estimate(approx_top_k_combine(frequent), 1) AS top,
               approx_top_k_error(approx_top_k_combine(frequent)) AS top_error,
               count_min_sketch_estimate(count_min_union_agg(counts), 'u1') AS u1,
               count_min_sketch_error(count_min_union_agg(counts)) AS u1_error,
               bloom_sketch_contains(bloom_union_agg(members), 'u1') AS has_u1,
               bloom_sketch_contains(bloom_union_agg(members), 'u2') AS has_u2,
               bloom_sketch_estimate(bloom_union_agg(members)) AS members
        FROM iot.sketches GROUP BY device ORDER BY device
        """,
    )
    exact = asked(
        store,
        'SELECT device, count(DISTINCT "user") AS users, count(*) AS n, list_sort(list(ms)) AS ms, '
        """count(*) FILTER ("user" = 'u1') AS u1 FROM iot.requests """
        "GROUP BY device ORDER BY device",
    )
    assert [row["device"] for row in found] == ["d0", "d1"]
    for row, truth in zip(found, exact, strict=True):
        assert row["windows"] == 11
        assert abs(row["hll"] - truth["users"]) <= 0.05 * truth["users"]
        assert row["theta"]["lower"] <= truth["users"] <= row["theta"]["upper"]
        assert row["n"] == truth["n"] == EVENTS // 2
        rank = sum(ms <= row["median"] for ms in truth["ms"]) / truth["n"]
        assert abs(rank - 0.5) <= 0.0133
        assert truth["u1"] <= row["u1"] <= truth["u1"] + row["u1_error"]
        assert (row["has_u1"], row["has_u2"]) == (row["device"] == "d1", row["device"] == "d0")
        assert abs(row["members"] - truth["users"]) <= 0.02 * truth["users"]
    # The filters are bit for bit those that are made without Spark.
    made = asked(store, "SELECT device, list(members) AS members FROM iot.sketches GROUP BY device ORDER BY device")
    users = asked(store, 'SELECT list(DISTINCT "user") AS users FROM iot.requests GROUP BY device ORDER BY device')
    for row, own in zip(made, users, strict=True):
        assert bloom.union(row["members"]) == bloom.build(own["users"])
    (nothing,) = spark.sql(
        f"SELECT {bloom.expression('x', 2)} AS f FROM VALUES (CAST(NULL AS STRING)) AS t(x)"
    ).collect()
    assert bytes(nothing.f) == bloom.build([], 2)
    # u1 is a third of the requests of d1; no user of d0 is frequent enough to be certain.
    assert found[0]["top"] == []
    (top,) = found[1]["top"]
    assert top["item"] == "u1"
    assert exact[1]["u1"] <= top["count"] <= exact[1]["u1"] + found[1]["top_error"]
