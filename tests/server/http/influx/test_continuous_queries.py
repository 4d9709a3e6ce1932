"""Continuous queries are deployed queries: what becomes of them, who sees them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from anabranch.catalog.state.query import QueryLease
from anabranch.deployments import hosting
from anabranch.model.ids import Micros
from tests.server.http.influx.conftest import fill
from tests.server.http.influx.influxdb_server import influxdb
from tests.server.http.serving import Serving


@pytest.fixture(scope="module")
def influx(tmp_path_factory: pytest.TempPathFactory, client: httpx.Client) -> Iterator[str]:
    with influxdb(tmp_path_factory.mktemp("influxd")) as url:
        fill(client, url)
        yield url


@pytest.fixture
def http(client: httpx.Client, broker: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=60) as made:
        yield made
        for info in broker.broker.store.queries.list():
            broker.broker.store.queries.delete(info.name)


def ask(http: httpx.Client, statement: str, url: str = "") -> Any:
    return http.post(f"{url}/query", params={"db": "db"}, data={"q": statement}).json()


def error_of(answer: Any) -> str:
    found = answer.get("error") or answer["results"][0].get("error")
    assert found is not None, answer
    return str(found)


def deployed(broker: Serving, name: str) -> str:
    """The statements of a deployed query."""
    return broker.broker.store.queries.versions(name)[-1].text


def test_a_continuous_query_is_deployed_as_a_pipeline(http: httpx.Client, broker: Serving) -> None:
    statement = (
        "CREATE CONTINUOUS QUERY loads ON db RESAMPLE EVERY 1m FOR 2m BEGIN SELECT mean(value), max(count) AS most "
        "INTO minutes FROM cpu WHERE host != 'd' AND count > 1 GROUP BY time(1m), region END"
    )
    assert ask(http, statement) == {"results": [{"statement_id": 0}]}
    assert deployed(broker, "db.loads") == (
        "-- CREATE CONTINUOUS QUERY loads ON db RESAMPLE EVERY 1m FOR 2m BEGIN SELECT mean(value), max(count) AS most INTO "
        "db.autogen.minutes FROM db.autogen.cpu WHERE host != 'd' AND count > 1 GROUP BY time(1m), region END\n"
        "CREATE STREAM `db`.`minutes` WITH (time = `time`, watermark = '1 minute') AS\n"
        "SELECT\n"
        "  window.start AS `time`,\n"
        "  nullif(`region`, '') AS `region`,\n"
        "  avg(double(`value`)) AS `mean`,\n"
        "  max(`count`) AS `most`\n"
        "FROM STREAM `db`.`cpu`\n"
        "WHERE ((coalesce(`host`, '') != 'd') AND (`count` > 1))\n"
        "GROUP BY window(`time`, '1 minute'), nullif(`region`, '')\n"
        "HAVING `mean` IS NOT NULL OR `most` IS NOT NULL;\n"
    )
    assert broker.broker.store.queries.get("db.loads").wanted == "running"


SHOWN = [
    "CREATE CONTINUOUS QUERY a ON db BEGIN SELECT mean(value) INTO m1 FROM cpu GROUP BY time(1m) END",
    """create continuous query b on db resample every 90s for 90s
    begin
        select mean(value) as "a b", max(count)*2 into "db"."autogen".m2 from cpu
        where host =~ /a|b/ and (value > 3.5 or not_there = '') group by time(90s, 10s), host, * fill(0)
    end""",
    """CREATE CONTINUOUS QUERY c ON db BEGIN SELECT (max(value) - min(value)) / count(count) + 1 AS "select" INTO other..m
    FROM cpu GROUP BY time(1h) fill(none) END""",
    """CREATE CONTINUOUS QUERY d ON db BEGIN SELECT mean(*) INTO other.autogen.:MEASUREMENT FROM cpu, mem
    WHERE host = 'its' OR host != 'b\\'c' GROUP BY time(1d), /host/ END""",
    """CREATE CONTINUOUS QUERY e ON other BEGIN SELECT count(distinct(count)), percentile(value, 90) INTO m FROM db..cpu
    GROUP BY time(500ms) fill(2.5) END""",
]


def test_they_are_shown_as_by_influxdb_and_dropped(http: httpx.Client, broker: Serving, influx: str) -> None:
    for url in (broker.url, influx):
        ask(http, "CREATE DATABASE other", url)
        for statement in SHOWN:
            for _ in range(2):  # the same again changes nothing
                assert ask(http, statement, url) == {"results": [{"statement_id": 0}]}, (url, statement)
        different = SHOWN[0].replace("mean", "sum")
        assert error_of(ask(http, different, url)) == "continuous query already exists"
    expected, found = (ask(http, "SHOW CONTINUOUS QUERIES", url) for url in (influx, broker.url))
    assert found == expected
    assert [len(series["values"]) for series in found["results"][0]["series"]] == [4, 1]
    for dropped in ("a", "b", "b", "none"):
        for url in (broker.url, influx):
            assert ask(http, f"DROP CONTINUOUS QUERY {dropped} ON db", url) == {"results": [{"statement_id": 0}]}
    expected, found = (ask(http, "SHOW CONTINUOUS QUERIES", url) for url in (influx, broker.url))
    assert found == expected
    assert [info.name for info in broker.broker.store.queries.list()] == ["db.c", "db.d", "other.e"]


def created(select: str, resample: str = "") -> str:
    return f"CREATE CONTINUOUS QUERY q ON db {resample} BEGIN {select} END"


REFUSED = [
    ("SELECT mean(value) INTO x FROM cpu", "", "expected GROUP BY time"),
    ("SELECT mean(value) FROM cpu GROUP BY time(1m)", "", "expected INTO"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m)", "RESAMPLE", "expected EVERY, FOR"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m)", "RESAMPLE FOR 30s", "FOR must not be shorter"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m)", "RESAMPLE EVERY 30s", "leave EVERY out"),
    ("SELECT value INTO x FROM cpu GROUP BY time(1m)", "", "at least one aggregate function"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m) fill(previous)", "", "use fill(none)"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m) fill(linear)", "", "use fill(none)"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m) fill(0)", "RESAMPLE FOR 2m", "use fill(none)"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m) LIMIT 1", "", "can't have ORDER BY, LIMIT"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m) tz('Europe/Berlin')", "", "or tz()"),
    ("SELECT mean(value) INTO x FROM cpu WHERE time > now() - 1h GROUP BY time(1m)", "", "leave it out"),
    ("SELECT mean(value) INTO long.x FROM cpu GROUP BY time(1m)", "", "retention policy not found: db.long"),
    ("SELECT mean(value) INTO none..x FROM cpu GROUP BY time(1m)", "", "database not found: none"),
    (
        "SELECT mean(m) INTO x FROM (SELECT mean(value) AS m FROM cpu) GROUP BY time(1m)",
        "",
        "a second continuous query",
    ),
    ("SELECT mean(value) INTO x FROM cpu, mem GROUP BY time(1m)", "", "database..:MEASUREMENT"),
    ("SELECT mean(value) INTO x FROM /cpu/ GROUP BY time(1m)", "", "name them: FROM a, b"),
    ("SELECT mean(value) INTO x FROM nothing GROUP BY time(1m)", "", "measurement not found: db.nothing"),
    ("SELECT mean(nothing) INTO x FROM cpu GROUP BY time(1m)", "", "there is no field 'nothing' yet"),
    ("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m), nothing", "", "there is no tag 'nothing' in cpu yet"),
    ("SELECT mean(value) INTO cpu FROM cpu GROUP BY time(1m)", "", "write into another measurement"),
    ("SELECT mean(value) INTO db..:MEASUREMENT FROM cpu GROUP BY time(1m)", "", "write into another measurement"),
    ("SELECT top(value, 2) INTO x FROM cpu GROUP BY time(1m)", "", "use max()"),
    ("SELECT distinct(value) INTO x FROM cpu GROUP BY time(1m)", "", "use count(distinct())"),
    ("SELECT derivative(mean(value)) INTO x FROM cpu GROUP BY time(1m)", "", "store the function inside it"),
    ("SELECT max(value), count INTO x FROM cpu GROUP BY time(1m)", "", "leave it out"),
    ("SELECT last(msg) INTO x FROM cpu GROUP BY time(1m)", "", "only count()"),
    ("SELECT mean(msg) INTO x FROM cpu GROUP BY time(1m)", "", "unsupported mean iterator type"),
    ("SELECT mean(value) & 1 INTO x FROM cpu GROUP BY time(1m)", "", "takes integers"),
    ("SELECT max(value) AS host INTO x FROM cpu GROUP BY time(1m), host", "", "two columns 'host' and 'host'"),
    ("SELECT max(value) AS _offset INTO x FROM cpu GROUP BY time(1m)", "", "can't be called '_offset'"),
]


@pytest.mark.parametrize(("select", "resample", "expected"), REFUSED)
def test_what_a_pipeline_can_not_say_is_refused_with_the_nearest_form(
    http: httpx.Client, broker: Serving, select: str, resample: str, expected: str
) -> None:
    assert expected in error_of(ask(http, created(select, resample)))
    assert broker.broker.store.queries.list() == []


def test_names_that_a_deployed_query_can_not_have_are_refused(http: httpx.Client, broker: Serving) -> None:
    select = "SELECT mean(value) INTO x FROM cpu GROUP BY time(1m)"
    for name in ('"a b"', '"ä"'):
        answer = ask(http, created(select).replace(" q ", f" {name} "))
        assert "is not a valid name for a query" in error_of(answer)
    assert "database not found: none" in error_of(ask(http, created(select).replace("ON db", "ON none")))
    broker.broker.store.queries.deploy("db.q", "CREATE STREAM db.y AS SELECT * FROM STREAM db.cpu", start=False)
    assert "is no continuous query" in error_of(ask(http, created(select)))
    ask(http, "DROP CONTINUOUS QUERY q ON db")  # of another kind, so it stays
    assert [info.name for info in broker.broker.store.queries.list()] == ["db.q"]
    assert "values" not in ask(http, "SHOW CONTINUOUS QUERIES")["results"][0]["series"][0]


def test_a_query_that_a_host_has_yet_to_delete_is_dropped_and_can_not_be_created_yet(
    http: httpx.Client, broker: Serving
) -> None:
    select = created("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m)")
    ask(http, select)
    store = broker.broker.store
    lease = QueryLease("t", 1, "h", Micros(store.runtime.clock.now() + 10_000_000))
    row = hosting.claim(store.catalog, "db.q", lease, now=store.runtime.clock.now())
    assert row is not None
    assert ask(http, "DROP CONTINUOUS QUERY q ON db") == ask(http, "DROP CONTINUOUS QUERY q ON db")
    assert store.queries.get("db.q").wanted == "deleted"
    assert "values" not in ask(http, "SHOW CONTINUOUS QUERIES")["results"][0]["series"][0]
    assert "is being deleted" in error_of(ask(http, select))
    hosting.remove(store.catalog, "db.q", row.epoch)
    assert ask(http, select) == {"results": [{"statement_id": 0}]}


def test_they_change_something_so_get_is_refused(http: httpx.Client) -> None:
    for statement in (created("SELECT mean(value) INTO x FROM cpu GROUP BY time(1m)"), "DROP CONTINUOUS QUERY q ON db"):
        answer = http.get("/query", params={"db": "db", "q": statement})
        assert answer.status_code == 400 and "by POST" in answer.json()["error"]


def test_text_in_a_statement_stays_text(http: httpx.Client, broker: Serving) -> None:
    where = "host = 'x\\'; DROP\\n-- `' AND msg =~ /a\\/b'/"
    ask(http, created(f'SELECT max(value) AS "a`b" INTO x FROM cpu WHERE {where} GROUP BY time(1m)'))
    text = deployed(broker, "db.q")
    assert text.splitlines()[0].startswith("-- CREATE CONTINUOUS QUERY q ON db BEGIN SELECT")
    assert "max(double(`value`)) AS `a``b`" in text
    assert "(coalesce(`host`, '') = 'x\\'; DROP\n-- `')" in text and "RLIKE 'a/b\\'')" in text
