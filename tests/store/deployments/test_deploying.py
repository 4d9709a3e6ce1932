"""Deploying, starting, stopping, rolling back and deleting queries, as state of the store: no host runs."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import limits
from anabranch.catalog.state.query import QUERY, QueryLease, QueryRestart, QueryRow
from anabranch.deployments import hosting
from anabranch.errors import Conflict, InvalidArgument, InvalidSql, QueryNotFound, RequestMismatch, TooLarge
from anabranch.model.ids import Micros
from anabranch.store import Store


def test_each_changed_text_parameter_or_trigger_is_a_version(anywhere: Store) -> None:
    queries = anywhere.queries
    assert queries.deploy("q", "one").version == 1
    assert queries.deploy("q", "one").version == 1
    assert queries.deploy("q", "two").version == 2
    three = "DECLARE PARAMETER a INT DEFAULT 0; SELECT"
    assert queries.deploy("q", three, parameters={"a": "1"}).version == 3
    assert queries.deploy("q", three, parameters={"a": "1"}, trigger="5s").version == 4
    found = queries.versions("q")
    assert [(each.number, each.text, dict(each.parameters), each.trigger_us) for each in found] == [
        (1, "one", {}, 1_000_000),
        (2, "two", {}, 1_000_000),
        (3, three, {"a": "1"}, 1_000_000),
        (4, three, {"a": "1"}, 5_000_000),
    ]
    assert len({each.digest for each in found}) == 4
    assert queries.deploy("p", "one").version == 1
    assert [info.name for info in queries.list()] == ["p", "q"]
    assert queries.versions("p")[0].digest == found[0].digest


def test_a_rollback_returns_to_a_version_and_makes_none(anywhere: Store) -> None:
    queries = anywhere.queries
    for text in ("one", "two", "three"):
        queries.deploy("q", text)
    assert queries.rollback("q").version == 2
    assert queries.rollback("q").version == 1
    with pytest.raises(InvalidArgument, match="no version before the current one, 1"):
        queries.rollback("q")
    assert queries.rollback("q", 3).version == 3
    with pytest.raises(QueryNotFound, match="has no version 4"):
        queries.rollback("q", 4)
    assert len(queries.versions("q")) == 3


def test_a_rollback_keeps_what_state_it_can(store: Store) -> None:
    def row() -> QueryRow:
        with store.catalog.reading() as txn:
            found = txn.state(QUERY, "q")
        assert found is not None
        return found

    for text in ("one", "two"):
        store.queries.deploy("q", text)
    store.queries.rollback("q")
    assert row().restart == QueryRestart((), upgrade=True)
    before = row()
    store.queries.rollback("q", 1)
    assert row() == before
    store.queries.rollback("q", 2, start_from="head", replace_results=True)
    assert row().restart == QueryRestart(("head",), replace=True, upgrade=True)


def test_what_is_wanted_follows_start_and_stop(anywhere: Store) -> None:
    queries = anywhere.queries
    assert (queries.deploy("q", "one", start=False).wanted, queries.get("q").state) == ("stopped", "stopped")
    assert (queries.start("q").wanted, queries.get("q").state) == ("running", "waiting")
    assert (queries.stop("q").wanted, queries.get("q").state) == ("stopped", "stopped")
    assert queries.deploy("q", "two", start=False).state == "stopped"
    assert queries.deploy("q", "two").state == "waiting"


def test_a_stop_may_become_one_that_waits_for_nothing(anywhere: Store) -> None:
    queries = anywhere.queries
    queries.deploy("q", "one")
    queries.stop("q", request="a")
    assert queries.stop("q", now=True, request="b").state == "stopped"
    with pytest.raises(RequestMismatch):
        queries.stop("q", request="b")
    assert queries.start("q").state == "waiting"


def test_a_query_that_never_ran_is_deleted_at_once(anywhere: Store) -> None:
    queries = anywhere.queries
    queries.deploy("q", "one")
    queries.deploy("q", "two")
    queries.delete("q")
    for verb in (queries.get, queries.versions, queries.start, queries.stop, queries.delete, queries.rollback):
        with pytest.raises(QueryNotFound, match="query 'q' not found"):
            verb("q")
    assert queries.deploy("q", "three").version == 1


def test_a_query_that_a_host_has_had_is_deleted_by_a_host(anywhere: Store) -> None:
    queries, now = anywhere.queries, anywhere.runtime.clock.now()
    queries.deploy("q", "one")
    lease = QueryLease("t", 1, "h", Micros(now + 10_000_000))
    row = hosting.claim(anywhere.catalog, "q", lease, now=now)
    assert row is not None
    queries.delete("q", drop_results=True)
    assert queries.get("q").wanted == "deleted"
    for verb in (queries.start, queries.stop, queries.rollback):
        with pytest.raises(Conflict, match="is being deleted"):
            verb("q")
    with pytest.raises(Conflict, match="is being deleted"):
        queries.deploy("q", "two")
    hosting.remove(anywhere.catalog, "q", row.epoch)
    assert queries.list() == []


def test_a_repeated_request_has_one_result(anywhere: Store) -> None:
    queries = anywhere.queries
    queries.deploy("q", "one", request="a")
    queries.deploy("q", "two", request="b")
    queries.deploy("q", "one", request="a")
    assert queries.get("q").version == 2
    with pytest.raises(RequestMismatch):
        queries.deploy("q", "three", request="a")
    queries.rollback("q", request="c")
    queries.rollback("q", request="c")
    assert queries.get("q").version == 1
    queries.delete("q", request="d")
    queries.delete("q", request="d")


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 300])
def test_a_name_that_can_not_name_its_streams_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidArgument, match="not a valid name for a query"):
        store.queries.deploy(name, "one")


def test_parameters_are_those_that_the_statements_declare(anywhere: Store) -> None:
    queries, text = anywhere.queries, "DECLARE PARAMETER a INT;\nSELECT"
    for given in ({}, {"b": "1"}, {"a": "one"}, {"a": "1", "b": "1"}):
        with pytest.raises(InvalidSql, match=r"'b'|'a' is of type INT, not 'one'|need values: a"):
            queries.deploy("q", text, parameters=given)
    assert queries.list() == []
    queries.deploy("q", text, parameters={"a": "1"})
    renamed = "DECLARE PARAMETER b INT;\nSELECT"
    for change in (queries.upgrade, queries.replay):
        with pytest.raises(InvalidSql, match="no parameter 'a'; it declares b"):
            change("q", renamed)
        with pytest.raises(InvalidSql, match=r"line 1: .*need values: b \(INT\)"):
            change("q", renamed, parameters={})
    assert (queries.get("q").version, len(queries.list())) == (1, 1)
    assert queries.upgrade("q", renamed, parameters={"b": "2"}).version == 2


def test_arguments_that_can_not_be_meant_are_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="requires a place"):
        store.queries.deploy("q", "one", replace_results=True)
    with pytest.raises(InvalidArgument, match="not a duration"):
        store.queries.deploy("q", "one", trigger="soon")
    with pytest.raises(TooLarge):
        store.queries.deploy("q", "x" * (limits.DEPLOYMENT_TEXT_BYTES_MAX + 1))
    assert store.queries.list() == []


def test_a_query_needs_a_text_and_a_trigger(anywhere: Store) -> None:
    queries = anywhere.queries
    nothing: Any = None
    with pytest.raises(InvalidArgument, match=r"'None' is not a duration|expected argument 'trigger'"):
        queries.deploy("q", "one", trigger=nothing)
    with pytest.raises(
        InvalidArgument, match=r"expected (the SQL|argument 'text' of queries\.\w+) as text, got (NoneType|null)"
    ):
        queries.deploy("q", nothing)
    queries.deploy("q", "one")
    with pytest.raises(
        InvalidArgument, match=r"expected (the SQL|argument 'text' of queries\.\w+) as text, got (NoneType|null)"
    ):
        queries.upgrade("q", nothing)
    assert queries.upgrade("q", "one", trigger=nothing).version == 1


def test_the_oldest_versions_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_VERSIONS_MAX", 3)
    for number in range(5):
        store.queries.deploy("q", str(number))
    assert [(each.number, each.text) for each in store.queries.versions("q")] == [(3, "2"), (4, "3"), (5, "4")]
