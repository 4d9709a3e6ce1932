"""What a statement that sheds load may say, and what is refused where."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.sql.parse import parse

SQL = """
CREATE STREAM out.means WITH (key = device, shed = 'lag > 10 s') AS
SELECT window.end AS closed, device, count(*) AS events,
       avg(celsius) AS mean, sum(celsius + 1) total
FROM STREAM iot.sensors
WHERE celsius IS DISTINCT FROM 3
GROUP BY window(at, '10 seconds'), device
HAVING count(*) > 3
"""


def test_aggregates_become_estimates_with_their_errors_on_their_lines() -> None:
    (statement,) = parse(SQL)
    lines = statement.query.splitlines()
    assert [line.split("AS `")[-1][:12] for line in lines[:2]] == ["events_error", "total_error`"]
    assert "AS `mean`" in lines[1] and "AS `mean_error`" in lines[1] and "(celsius + 1)" in lines[1]
    assert lines[2].startswith(", 1 - count(1) / sum(1 / _shed_rate) AS _shed FROM")
    assert "count(*)" not in statement.query and lines[-1].startswith("HAVING CAST(round(coalesce(sum(")


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("avg(celsius) AS mean", "max(celsius) AS mean", "max can't be estimated", 4),
        ("avg(celsius) AS mean", "count(DISTINCT celsius) AS mean", "can't have DISTINCT", 4),
        ("avg(celsius) AS mean", "hll_sketch_agg(celsius) AS mean", "hll_sketch_agg can't", 4),
        ("avg(celsius) AS mean", "approx_count_distinct(celsius) AS mean", "approx_count_distinct can't", 4),
        ("avg(celsius) AS mean", "avg(celsius) * 2 AS mean", "a column of its own", 4),
        ("avg(celsius) AS mean", "avg(celsius)", "name the column", 4),
        ("avg(celsius) AS mean", "count(device, celsius) AS mean", "one argument", 4),
        ("avg(celsius) AS mean", "sum(*) AS mean", "expected a column", 4),
        ("avg(celsius) AS mean", "avg(celsius) FILTER (WHERE celsius > 0) AS mean", "a column of its own", 4),
        ("FROM STREAM iot.sensors", "FROM STREAM iot.sensors JOIN iot.devices USING (device)", "can't have JOIN", 5),
        ("FROM STREAM iot.sensors", "FROM (SELECT * FROM STREAM iot.sensors)", "can't have a subquery", 5),
        ("window(at, '10 seconds')", "session_window(at, '10 seconds')", "session_window can't", 7),
        ("window(at, '10 seconds')", "count_window(10)", "count_window can't", 7),
        ("HAVING count(*) > 3", "EMIT EARLY EVERY 2 EVENTS", "EMIT can't", 8),
        ("shed = 'lag > 10 s'", "shed = 'lag > 10'", "shed = 'lag > 10': expected 'lag > 10 s'", 2),
        ("shed = 'lag > 10 s'", "shed_priority = 'celsius > 3'", "shed_priority requires shed", 2),
    ],
)
def test_what_can_not_be_estimated_is_refused_at_its_line(old: str, new: str, message: str, line: int) -> None:
    with pytest.raises(InvalidSql) as refused:
        parse(SQL.replace(old, new))
    assert message in str(refused.value)
    assert refused.value.line == line


def test_a_query_without_an_aggregate_is_refused() -> None:
    with pytest.raises(InvalidSql, match=r"requires count, sum or avg"):
        parse("CREATE STREAM out.x WITH (shed = 'never') AS SELECT * FROM STREAM iot.sensors")


def test_a_statement_keeps_its_state_when_the_rule_changes_alone() -> None:
    (shed,), (more,), (none,), (plain,) = (
        plan(SQL.replace("shed = 'lag > 10 s'", option))
        for option in (
            "shed = 'lag > 10 s'",
            "shed = 'rate > 5'",
            "shed = 'never'",
            "late = true",
        )
    )
    assert shed.output.fingerprint == more.output.fingerprint == none.output.fingerprint != plain.output.fingerprint


def test_the_digest_of_a_statement_without_these_options_is_that_of_earlier_versions() -> None:
    (step,) = plan("CREATE STREAM out.x WITH (key = device) AS SELECT * FROM STREAM iot.sensors")
    assert step.output.fingerprint == "123b345814464db7"
