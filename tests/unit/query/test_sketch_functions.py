"""Functions of sketches in queries: aggregates over groups, nulls, empty groups and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, InvalidArgument, InvalidSql
from anabranch.query import Query
from anabranch.sketches import hll, theta

Ask = Callable[[str], list[tuple[Any, ...]]]
SCHEMA = pa.schema([("device", pa.string()), ("hour", pa.int64()), ("users", pa.binary()), ("visits", pa.binary())])


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks a store with a stream of sketches: each hour of a device has 100 users, 50 of them those of the hour before."""
    with ab.connect(tmp_path_factory.mktemp("sketches") / "store", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/users", schema=SCHEMA, key="device")
        with store.writer("iot/users") as writer:
            for hour in range(4):
                users = range(50 * hour, 50 * hour + 100)
                for device in "ab":
                    row = {"device": device, "hour": hour, "users": hll.build(users), "visits": theta.build(users)}
                    writer.write(row)
            writer.write({"device": "null", "hour": 0, "users": None, "visits": None})
            writer.write({"device": "bad", "hour": 0, "users": b"rubbish-rubbish", "visits": hll.build([1])})
        with Query(store) as query:

            def answer(sql: str) -> list[tuple[Any, ...]]:
                result = query.run(sql)
                assert result is not None
                return [tuple(row.values()) for batch in result for row in batch.to_pylist()]

            yield answer


def test_sketches_are_merged_by_group_and_over_any_range(ask: Ask) -> None:
    estimate = "SELECT device, hll_sketch_estimate(hll_union_agg(users)) FROM iot.users WHERE "
    assert ask(f"{estimate} device < 'bad' GROUP BY device ORDER BY ALL") == [("a", 250), ("b", 250)]
    assert ask(f"{estimate} device = 'a' AND hour BETWEEN 1 AND 2 GROUP BY device") == [("a", 150)]
    assert (
        ask(f"{estimate} device < 'bad' GROUP BY device HAVING hll_sketch_estimate(hll_union_agg(users)) > 300") == []
    )
    running = (
        "SELECT hour, hll_sketch_estimate(hll_union_agg(users) OVER (ORDER BY hour)) FROM iot.users WHERE device = 'a'"
    )
    assert ask(running) == [(0, 100), (1, 150), (2, 200), (3, 250)]


def test_set_operations_and_bounds(ask: Ask) -> None:
    hours = "(SELECT visits FROM iot.users WHERE device = 'a' AND hour = {})"
    first, second = hours.format(0), hours.format(1)
    for operation, exact in (("union", 150), ("intersection", 50), ("difference", 50)):
        sketch = f"theta_{operation}({first}, {second})"
        assert ask(f"SELECT theta_sketch_estimate({sketch}), theta_sketch_bounds({sketch}, 2)") == [
            (exact, {"lower": exact, "upper": exact})
        ]
    both = "SELECT theta_sketch_estimate(theta_intersection_agg(visits)) FROM iot.users WHERE device = 'a' AND hour < 2"
    assert ask(both) == [(50,)]
    bounds = ask("SELECT hll_sketch_bounds(hll_union_agg(users)) FROM iot.users WHERE device = 'a'")[0][0]
    assert bounds["lower"] <= 250 <= bounds["upper"]


def test_sketches_of_events_merge_with_those_of_a_stream(ask: Ask) -> None:
    sql = """
        WITH now AS (SELECT hll_sketch_agg(n) AS users FROM range(200, 400) t(n))
        SELECT hll_sketch_estimate(hll_union_agg(users))
        FROM (SELECT users FROM iot.users WHERE device = 'a' UNION ALL SELECT users FROM now)
    """
    assert abs(ask(sql)[0][0] - 400) <= 2
    assert ask("SELECT hll_sketch_estimate(hll_sketch_agg(device)) FROM iot.users") == [(4,)]
    assert ask("SELECT kll_sketch_get_n_bigint(kll_sketch_agg_bigint(hour, k := 400)) FROM iot.users") == [(10,)]
    assert ask(
        "SELECT [kll_sketch_get_quantile_double(s, r) FOR r IN [0, 0.5, 1]] "
        "FROM (SELECT kll_sketch_agg_double(n) AS s FROM (SELECT n::DOUBLE AS n FROM range(1, 102) t(n)))"
    ) == [([1.0, 51.0, 101.0],)]


def test_nulls_and_empty_groups_are_as_in_spark(ask: Ask) -> None:
    """A merge of nothing is an empty sketch; anything else of null is null."""
    for where in ("device = 'null'", "device = 'nobody'"):
        assert ask(
            "SELECT hll_sketch_estimate(hll_union_agg(users)), theta_sketch_estimate(theta_intersection_agg(visits)), "
            f"kll_sketch_get_n_bigint(kll_merge_agg_bigint(users)) FROM iot.users WHERE {where}"
        ) == [(0, 0, 0)]
    assert ask("SELECT hll_sketch_estimate(users), hll_union(users, users) FROM iot.users WHERE device = 'null'") == [
        (None, None)
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT hll_union_agg(users) FROM iot.users",
            "hll_union_agg: expected the bytes of an HLL sketch, found 15 bytes that are none",
        ),
        (
            "SELECT theta_union_agg(visits) FROM iot.users",
            "theta_union_agg: expected a theta sketch, found an HLL sketch",
        ),
        (
            "SELECT hll_sketch_estimate(device) FROM iot.users",
            "hll_sketch_estimate: expected the bytes of an HLL sketch, ",
        ),
        ("SELECT hll_sketch_agg(1.5)", "hll_sketch_agg: an HLL sketch takes integers, text or bytes, not Decimal"),
        ("SELECT hll_sketch_agg(1, 30)", "hll_sketch_agg: lgConfigK is an integer from 4 to 21, not 30"),
        (
            "SELECT hll_union(hll_sketch_agg(1), hll_sketch_agg(2, 10))",
            "hll_union: the HLL sketches have different lgConfigK, 12 and 10",
        ),
        (
            "SELECT kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(1), 2)",
            "rank of a quantile is a number from 0 to 1",
        ),
    ],
)
def test_bad_input_is_one_clear_error(ask: Ask, sql: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        ask(sql)
    assert str(refused.value).startswith(message) or message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_wrong_arguments_are_refused(ask: Ask) -> None:
    with pytest.raises(InvalidSql, match="hll_sketch_estimate"):
        ask("SELECT hll_sketch_estimate(users, 3) FROM iot.users")
    with pytest.raises(InvalidSql, match="FILTER"):
        ask("SELECT hll_union_agg(users) FILTER (WHERE hour > 1) FROM iot.users")


def test_the_sandbox_holds_with_functions_of_sketches(ask: Ask) -> None:
    assert ask("SELECT hll_sketch_estimate(hll_sketch_agg(1))") == [(1,)]
    for sql in (
        "SELECT hll_sketch_agg(content) FROM read_text('/etc/hostname')",
        "SET enable_external_access = true",
        "COPY (SELECT hll_sketch_agg(1)) TO '/tmp/sketch.parquet'",
    ):
        with pytest.raises(AnabranchError, match=r"files|settings"):
            ask(sql)


def test_frequencies_and_membership_of_values_in_a_query(ask: Ask) -> None:
    values = "(SELECT CASE WHEN n < 60 THEN 'often' WHEN n < 90 THEN n::VARCHAR END AS x, n % 3 AS part FROM range(100) t(n))"
    sketches = f"""SELECT part, approx_top_k_accumulate(x, 30) AS top, count_min_sketch(x, 0.01, 0.99, 1) AS counts,
        bloom_sketch_agg(x, 2) AS members FROM {values} GROUP BY part"""
    assert ask(
        f"""WITH parts AS ({sketches})
        SELECT approx_top_k_estimate(approx_top_k_combine(top), 1)[1].item, approx_top_k_count(approx_top_k_combine(top)),
            approx_top_k_error(approx_top_k_combine(top)),
            count_min_sketch_estimate(count_min_union_agg(counts), 'often'), count_min_sketch_count(count_min_union_agg(counts)),
            bloom_sketch_contains(bloom_union_agg(members), '89'), bloom_sketch_contains(bloom_union_agg(members), '90'),
            bloom_sketch_estimate(bloom_union_agg(members))
        FROM parts"""
    ) == [("often", 90, 0, 60, 90, True, False, 31)]
    assert ask("SELECT approx_top_k_estimate(approx_top_k_accumulate(n)) FROM (VALUES (5), (5), (NULL)) t(n)") == [
        ([{"item": "5", "count": 2}],)
    ]
    empty = "FROM iot.users WHERE false"
    assert ask(f"SELECT approx_top_k_combine(NULL), count_min_union_agg(users) {empty}") == [(None, None)]
    assert ask(f"SELECT bloom_sketch_estimate(bloom_union_agg(users)), bloom_sketch_contains(NULL, 1) {empty}") == [
        (0, None)
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT bloom_sketch_contains(users, 'a') FROM iot.users",
            "bloom_sketch_contains: expected the bytes of a Bloom",
        ),
        ("SELECT count_min_sketch_estimate(visits, 'a') FROM iot.users", "expected the bytes of a count-min sketch"),
        ("SELECT approx_top_k_estimate(visits) FROM iot.users", "expected a result of approx_top_k_accumulate"),
        (
            "SELECT approx_top_k_estimate({'sketch': visits, 'itemDataTypeDDL': 'item DATE'}) FROM iot.users",
            "cast the values",
        ),
    ],
)
def test_what_is_no_sketch_of_frequencies_is_refused(ask: Ask, sql: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ask(sql)
