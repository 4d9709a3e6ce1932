"""Plans of upgrades: what keeps its state, what restarts, and what is refused."""

from __future__ import annotations

import pytest

from anabranch.catalog.state.query_question import UpgradePlan
from anabranch.deployments.versions import check_upgrade
from anabranch.errors import InvalidArgument
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.queries.upgrade import compare

COUNTS = """
CREATE STREAM out.counts WITH (key = device, time = closed, watermark = '5 seconds') AS
SELECT window.end AS closed, device, count(*) AS events FROM STREAM iot.sensors GROUP BY window(at, '10 seconds'), device
"""
HOT = "CREATE STREAM out.hot AS SELECT device, at, celsius FROM STREAM iot.sensors WHERE celsius > 30"
LAST = "CREATE STREAM out.last AS SELECT device, events FROM STREAM out.counts"


def verdicts(before: str, after: str) -> dict[str, str]:
    return {each.target.partition("/")[2]: each.verdict for each in compare(plan(before), plan(after))}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COUNTS, "-- a comment\n" + COUNTS.replace("GROUP", "\n  GROUP")),
        (
            COUNTS,
            COUNTS.replace("WITH (", "WITH (trigger = '9 seconds', idle = '1 minute', segments = 7, start = tail, "),
        ),
        (COUNTS, COUNTS.replace("'5 seconds'", "'1 minute'")),
        (HOT, HOT.replace("> 30", "< 10 AND upper(device) = 'A'")),
        (HOT, HOT.replace("celsius FROM", "celsius * 2 AS celsius FROM")),
    ],
)
def test_what_can_not_give_wrong_numbers_keeps_its_state(before: str, after: str) -> None:
    assert set(verdicts(before, after).values()) == {"keeps state"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COUNTS, COUNTS.replace("count(*)", "sum(celsius)")),
        (COUNTS, COUNTS.replace("'10 seconds'", "'5 seconds'")),
        (COUNTS, COUNTS.replace("device FROM", "device FROM").replace(", device\n", ", upper(device)\n")),
        (COUNTS, COUNTS.replace("GROUP BY", "WHERE celsius > 3 GROUP BY")),
        (COUNTS, COUNTS.replace("time = closed", "time = closed, late = false")),
        (HOT, HOT.replace("SELECT", "SELECT DISTINCT")),
        (HOT, HOT.replace("celsius FROM", "max_by(celsius, at) AS celsius FROM")),
        (HOT, HOT.replace("celsius FROM", "my_aggregate(celsius) AS celsius FROM")),
        (HOT, HOT.replace("iot.sensors", "iot.others")),
        (HOT, HOT.replace("WHERE", "JOIN iot.limits USING (device) WHERE")),
        (HOT, HOT.replace("> 30", "> (SELECT max(celsius) FROM iot.limits)")),
    ],
)
def test_what_could_restarts(before: str, after: str) -> None:
    assert set(verdicts(before, after).values()) == {"restarts"}
    assert set(verdicts(after, before).values()) == {"restarts"}


@pytest.mark.parametrize(("old", "new"), [("key = device", "key = closed"), ("time = closed, ", "")])
def test_what_does_not_fit_the_result_stream_is_refused(old: str, new: str) -> None:
    found = UpgradePlan(1, compare(plan(COUNTS), plan(COUNTS.replace(old, new))))
    with pytest.raises(InvalidArgument, match=r"out/counts \(line 2\) can't be upgraded: its result stream has"):
        check_upgrade(found, places=True)


def test_statements_are_distinguished_and_those_downstream_follow() -> None:
    both = f"{COUNTS};{LAST}"
    assert verdicts(both, both + ";" + HOT) == {"counts": "keeps state", "last": "keeps state", "hot": "new"}
    assert verdicts(both + ";" + HOT, both) == {"counts": "keeps state", "last": "keeps state", "hot": "removed"}
    changed = both.replace("count(*)", "sum(1)")
    assert verdicts(both + ";" + HOT, changed + ";" + HOT) == {
        "counts": "restarts",
        "last": "restarts",
        "hot": "keeps state",
    }
    assert verdicts(both, both.replace("device, events FROM", "device FROM")) == {
        "counts": "keeps state",
        "last": "keeps state",
    }
    found = UpgradePlan(1, compare(plan(both), plan(changed)))
    assert found.restarts == ("out/counts", "out/last")
    assert check_upgrade(found, places=True) is found
    with pytest.raises(InvalidArgument, match=r"has to start over: its query has changed.*--restart-from"):
        check_upgrade(found, places=False)


@pytest.mark.parametrize(("opening", "closing"), [("DATE(", ")"), ("struct(", ")"), ("ARRAY[", "]")])
def test_a_query_that_takes_its_parser_for_ever_restarts(opening: str, closing: str) -> None:
    nested = f"{opening * 60}at{closing * 60}"  # each bracket doubles the time
    assert verdicts(HOT, HOT.replace("at,", f"{nested} AS at,")) == {"hot": "restarts"}
    few = f"{opening * 3}at{closing * 3}"
    assert verdicts(HOT, HOT.replace("at,", f"{few} AS at,")) == {"hot": "keeps state"}
