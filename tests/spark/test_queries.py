"""Deployed queries on a host, both real processes: deployed, killed, stopped, rolled back, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import InvalidSql
from tests.cli.kit import Line
from tests.spark.hosts import HostProcess, by_duckdb, driver_of, kill_driver
from tests.spark.pipelines import COUNTS, counted, new_store, put, rows
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.process]

HOT = """
DECLARE PARAMETER least DOUBLE DEFAULT 5;
CREATE STREAM out.hot AS SELECT device, at, celsius FROM STREAM iot.sensors WHERE celsius >= :least
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ab.Store]:
    with new_store(tmp_path_factory.mktemp("hosted") / "river") as opened:
        yield opened


@pytest.fixture(scope="module")
def host(store: ab.Store) -> Iterator[HostProcess]:
    serving = HostProcess(store, Path(store.url).parent / "host.log", "--spares", "0", "--lease", "5s")
    yield serving
    serving.end()


def state(store: ab.Store, query: str) -> str:
    return store.queries.get(query).state


def log_of(store: ab.Store, query: str) -> list[str]:
    name = f"_store/query.{query}"
    return [row["message"] for row in rows(store, name)] if store.streams.find(name) is not None else []


def hot(store: ab.Store) -> list[float]:
    return sorted(row["celsius"] for row in rows(store, "out/hot"))


def test_a_query_goes_on_when_its_driver_is_killed(store: ab.Store, host: HostProcess) -> None:
    put(store, range(200))
    info = store.queries.deploy("counts", COUNTS)
    assert (info.state, info.version, info.host) == ("waiting", 1, None)
    host.wait(lambda: store.streams.exists("out/counts") and sum(counted(store).values()) > 0)
    first = kill_driver(store, "counts")
    put(store, range(200, 400))
    expected = by_duckdb(store, until_s=399 - 5)
    host.wait(lambda: sum(counted(store).values()) >= sum(expected.values()))
    assert counted(store) == expected
    assert driver_of(store, "counts") != first
    host.wait(lambda: store.queries.get("counts").progress[0]["batch"] >= 1)
    info = store.queries.get("counts")
    assert (info.state, info.restarts, info.epoch) == ("running", 1, 1)
    assert info.error is not None and f"driver {first} ended by signal 9" in info.error
    assert info.results == ("out/counts",)
    log = log_of(store, "counts")
    assert [line.split(" in ")[0] for line in log] == [
        "version 1 starts",
        "version 1 runs",
        log[2].split(" in ")[0],
        "version 1 starts",
        "version 1 runs",
    ]


def test_a_query_that_is_not_valid_fails_alone_and_goes_on_once_it_is_rolled_back(
    store: ab.Store, host: HostProcess
) -> None:
    store.queries.deploy("hot", HOT)
    host.wait(lambda: store.streams.exists("out/hot") and len(hot(store)) == len(hot_events(store, 5)))
    bad = HOT.replace("celsius >= :least", "fahrenheit >= :least")
    assert store.queries.deploy("hot", bad, start_from="head").version == 2
    host.wait(lambda: state(store, "hot") == "failed")
    info = store.queries.get("hot")
    assert info.error is not None
    assert info.error.startswith("line 3: ") and "`fahrenheit` cannot be resolved" in info.error
    assert "\n" not in info.error
    until(lambda: store.queries.get("hot").host is None)  # the host gives it back in its next round
    put(store, range(400, 420))
    expected = by_duckdb(store, until_s=419 - 5)
    host.wait(lambda: counted(store) == expected)
    store.queries.rollback("hot")
    host.wait(lambda: state(store, "hot") == "running" and len(hot(store)) == len(hot_events(store, 5)))
    assert hot(store) == hot_events(store, 5)


def hot_events(store: ab.Store, least: float) -> list[float]:
    return sorted(row["celsius"] for row in rows(store, "iot/sensors") if row["celsius"] >= least)


def test_a_stopped_query_goes_on_where_it_was(store: ab.Store, host: HostProcess) -> None:
    assert store.queries.stop("counts").state == "stopping"
    host.wait(lambda: state(store, "counts") == "stopped")
    until(lambda: store.queries.get("counts").host is None)
    put(store, range(420, 500))
    assert state(store, "hot") == "running"
    store.queries.start("counts")
    expected = by_duckdb(store, until_s=499 - 5)
    host.wait(lambda: counted(store) == expected)
    store.queries.stop("counts", now=True)
    host.wait(lambda: state(store, "counts") == "stopped")
    store.queries.start("counts")
    host.wait(lambda: state(store, "counts") == "running")


def test_a_changed_version_starts_over_where_it_says_and_replaces_results(store: ab.Store, host: HostProcess) -> None:
    refused = store.queries.deploy("hot", HOT, parameters={"least": "6"})
    assert refused.version == 3
    host.wait(lambda: state(store, "hot") == "failed")
    assert "start over with --from" in str(store.queries.get("hot").error)
    store.queries.deploy("hot", HOT, parameters={"least": "6"}, start_from="head", replace_results=True)
    host.wait(lambda: state(store, "hot") == "running" and hot(store) == hot_events(store, 6))
    assert [version.number for version in store.queries.versions("hot")] == [1, 2, 3]


def test_a_host_says_what_a_query_is_and_what_an_upgrade_does_and_does_it(
    store: ab.Store, host: HostProcess, tmp_path: Path
) -> None:
    store.queries.deploy("counts", COUNTS)
    host.wait(lambda: "version 1 runs" in log_of(store, "counts"))
    (statement,) = store.queries.validate(COUNTS).statements
    assert (statement.target, statement.sources, statement.columns["events"]) == (
        "out/counts",
        ("iot/sensors",),
        "int64",
    )
    with pytest.raises(InvalidSql, match=r"^line 3: .*`fahrenheit`") as no:
        store.queries.validate(HOT.replace("celsius >=", "fahrenheit >="))
    assert no.value.line == 3
    kept = store.queries.committed_state("counts", "d1")
    assert kept.rows and {row.key["device"] for row in kept.rows} == {"d1"}
    before = counted(store)
    wider = COUNTS.replace("'5 seconds'", "'8 seconds'")
    (planned,) = store.queries.plan("counts", wider).statements
    assert (planned.verdict, planned.reason) == ("keeps state", "the changed watermark holds from here on")
    other = COUNTS.replace("count(*)", "sum(2)")
    found = store.queries.plan("counts", other)
    assert (found.version, found.restarts) == (1, ("out/counts",))
    file = tmp_path / "counts.sql"
    file.write_text(other)
    line = Line(Path(store.url))
    assert "restarts" in line("queries", "upgrade", "counts", file, "--plan").out
    assert "has to start over: its query has changed" in line.refused("queries", "upgrade", "counts", file)
    assert (store.queries.get("counts").version, counted(store)) == (1, before)
    store.queries.upgrade("counts", wider)
    host.wait(lambda: "version 2 runs" in log_of(store, "counts"))
    put(store, range(500, 600))
    expected = by_duckdb(store, until_s=599 - 8)
    host.wait(lambda: counted(store).keys() >= expected.keys())
    assert counted(store) == expected
    store.queries.upgrade("counts", other)  # nothing said where, so nothing is done
    host.wait(lambda: state(store, "counts") == "failed")
    assert "--restart-from" in str(store.queries.get("counts").error)
    assert counted(store) == expected
    store.queries.rollback("counts")
    host.wait(lambda: state(store, "counts") == "running")
    assert counted(store) == expected


@pytest.mark.slow
def test_a_rollback_keeps_the_state_of_what_is_the_same(store: ab.Store, host: HostProcess) -> None:
    kept = COUNTS.replace("out.counts", "out.kept")
    other = "CREATE STREAM out.other AS SELECT device, count(*) AS n FROM STREAM iot.sensors GROUP BY device, count_window(5)"
    put(store, range(600, 640))
    store.queries.deploy("two", f"{kept}; {other}")
    host.wait(lambda: "version 1 runs" in log_of(store, "two"))
    store.queries.upgrade("two", f"{kept}; {other.replace('(5)', '(7)')}", restart_from="head", replace_results=True)
    host.wait(lambda: "version 2 runs" in log_of(store, "two") and store.streams.exists("out/other"))
    host.wait(lambda: {row["n"] for row in rows(store, "out/other")} == {7})
    line = Line(Path(store.url))
    found = line("queries", "rollback", "two", "--plan").out
    assert "keeps state" in found and "restarts" in found
    assert "has to start over" in line.refused("queries", "rollback", "two")
    head = store.cuts.head("out/kept")
    line("queries", "rollback", "two", "--restart-from", "head", "--replace", "--yes")
    host.wait(lambda: {row["n"] for row in rows(store, "out/other")} == {5})
    put(store, range(640, 680))
    expected = by_duckdb(store, until_s=679 - 5)
    host.wait(lambda: sum(counted(store, "out/kept").values()) >= sum(expected.values()))
    assert counted(store, "out/kept") == expected
    assert store.cuts.head("out/kept") == head != store.cuts.head("out/other")
    store.queries.delete("two", drop_results=True)
    host.wait(lambda: "two" not in [info.name for info in store.queries.list()])


def test_the_command_line_shows_queries_and_deletes_them(
    store: ab.Store, host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    line = Line(Path(store.url))
    assert {row["name"]: row["state"] for row in line("queries", "list", "--json").json} == {
        "counts": "running",
        "hot": "running",
    }
    assert "out/counts" in line("queries", "list").out
    shown = line("queries", "show", "hot").out
    assert "least = 6" in shown and "out/hot" in shown
    assert "version 3 runs" in line("queries", "logs", "hot").out
    assert "current" in line("queries", "versions", "hot").out
    bad = tmp_path / "bad.sql"
    bad.write_text("CREATE STREAM out.bad AS\nSELEC 1")
    assert line.refused("queries", "deploy", "bad", bad)
    line("queries", "delete", "hot", "--drop-results", "--yes")
    host.wait(lambda: [info.name for info in store.queries.list()] == ["counts"])
    assert [str(info.name) for info in store.streams.list()] == ["iot/sensors", "out/counts", "out/counts_late"]
    assert store.streams.find("_store/query.hot") is None


def test_a_host_that_ends_gives_its_queries_back(store: ab.Store, host: HostProcess) -> None:
    assert host.stop() == 0
    info = store.queries.get("counts")
    assert (info.state, info.host) == ("waiting", None)
    assert not list(store.check())
