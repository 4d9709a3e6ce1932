"""How far the watermark must go after the newest event to close everything that is open."""

from __future__ import annotations

import pytest

from anabranch.spark.pipelines.plan import plan

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("query", "horizon_us"),
    [
        ("SELECT * FROM STREAM iot.a", 0),
        ("SELECT count(*) FROM STREAM iot.a GROUP BY window(at, '10 seconds')", 10 * SECOND),
        ("SELECT count(*) FROM STREAM iot.a GROUP BY window(at, '10 seconds', '2 seconds')", 10 * SECOND),
        ("SELECT count(*) FROM STREAM iot.a GROUP BY session_window(at, '1 minute')", 60 * SECOND),
        ("SELECT count(*) FROM STREAM iot.a GROUP BY window(at, '1500 microseconds')", 1_500 + 1_000),
        ("SELECT at + INTERVAL 1 HOUR AS t FROM STREAM iot.a", 0),  # one source: nothing waits for the interval
        (
            """SELECT * FROM STREAM iot.a JOIN STREAM iot.b
            ON b.at BETWEEN a.at - INTERVAL '1 minute' AND a.at + interval 2 minutes 3 seconds""",
            183 * SECOND + 1_000,
        ),
        (
            """SELECT * FROM STREAM iot.a JOIN STREAM iot.b
            ON b.at BETWEEN a.at + INTERVAL '-5 seconds' AND a.at + INTERVAL 3 seconds""",
            8 * SECOND + 1_000,
        ),
        ("SELECT * FROM STREAM iot.a JOIN STREAM iot.b ON b.at < a.at + INTERVAL '2' MINUTE", 120 * SECOND + 1_000),
        ("SELECT * FROM STREAM iot.a JOIN STREAM iot.b ON b.at < a.at + INTERVAL 1 YEAR", 1_000),  # Spark refuses it
    ],
)
def test_the_horizon_is_that_of_windows_and_joins(query: str, horizon_us: int) -> None:
    (step,) = plan(f"CREATE STREAM out.x AS {query}")
    assert step.statement.horizon_us == horizon_us


def test_the_idle_time_may_change_without_new_checkpoints() -> None:
    text = "CREATE STREAM out.x WITH (key = k{}) AS SELECT * FROM STREAM iot.a"
    without, with_idle = (plan(text.format(option))[0] for option in ("", ", idle = '5 seconds'"))
    assert with_idle.statement.options.idle_us == 5 * SECOND
    assert without.output.fingerprint == with_idle.output.fingerprint
