"""Deployed queries as resources: deployed, listed, shown, started, stopped, rolled back and deleted."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import httpx
import pytest

from anabranch import limits
from anabranch.catalog.state.query import QUERY, QueryRestart
from anabranch.catalog.state.query_question import (
    DeclaredParameter,
    QueryQuestion,
    StatementPlan,
    UpgradePlan,
    ValidatedQuery,
    ValidatedStatement,
)
from anabranch.deployments import hosting
from anabranch.deployments.questions import answer, open_questions
from anabranch.deployments.record import log_stream
from anabranch.errors import InvalidSql, StoreUnavailable
from anabranch.spark.queries.log import QueryLogs
from anabranch.store import Store
from tests.hosted import Hosted
from tests.waiting import until

SIZE = "DECLARE PARAMETER size INTERVAL DEFAULT '1 second'; -- of a window\n"
SQL = f"{SIZE}DECLARE PARAMETER least STRING DEFAULT '0';\nCREATE STREAM out.means AS SELECT …"
MEANS = "/v1/queries/means"


def test_a_query_is_deployed_by_its_sql_and_again_by_what_changed(http: httpx.Client, store: Store) -> None:
    first = http.put(MEANS, content=SQL)
    assert first.status_code == 201, first.text
    assert first.headers["location"] == MEANS
    assert {name: first.json()[name] for name in ("name", "state", "wanted", "version", "results", "host")} == {
        "name": "means",
        "state": "waiting",
        "wanted": "running",
        "version": 1,
        "results": [],
        "host": None,
    }
    again = http.put(MEANS, content=SQL)
    assert (again.status_code, again.json()) == (200, first.json())
    params = {"param": ["size=1 minute", "least=5=x"], "trigger": "5s", "from": ["head", "-5"], "by": "event"}
    changed = http.put(MEANS, content=SQL, params={**params, "replace": "", "start": "false"})
    assert (changed.json()["version"], changed.json()["wanted"]) == (2, "stopped")
    version = store.queries.versions("means")[1]
    assert (version.text, version.trigger_us) == (SQL, 5_000_000)
    assert version.parameters == {"size": "1 minute", "least": "5=x"}
    as_json = {"sql": SQL, "parameters": {"least": "5=x", "size": "1 minute"}, "trigger": "5s", "start": True}
    assert http.put(MEANS, json=as_json).json()["version"] == 2
    assert http.put(MEANS, json={**as_json, "from": "head", "replace": True}).json()["wanted"] == "running"
    assert http.get(MEANS).json()["version"] == 2
    assert [info.name for info in store.queries.list()] == ["means"]


def test_parameters_in_the_address_beside_a_json_body_are_refused(http: httpx.Client, store: Store) -> None:
    refused = http.put(f"{MEANS}?start=false&trigger=5s", json={"sql": SQL})
    assert refused.status_code == 400
    assert refused.json()["detail"] == (
        "with a body in JSON, put 'start', 'trigger' into the body instead of the query string"
    )
    assert store.queries.list() == []


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "application/sql"])
def test_json_that_is_sent_as_sql_is_refused(http: httpx.Client, store: Store, kind: str) -> None:
    refused = http.put(MEANS, content=json.dumps({"sql": SQL}), headers={"content-type": kind})
    assert refused.status_code == 400
    assert refused.json()["detail"] == (
        "the body looks like JSON, not SQL; send JSON with Content-Type: application/json"
    )
    assert store.queries.list() == []


def test_a_query_says_why_it_has_no_hot_standby(http: httpx.Client, store: Store) -> None:
    assert http.put(MEANS, json={"sql": SQL, "standby": "hot"}).json()["standby_refused"] is None
    (row,) = hosting.queries(store.catalog)
    hosting.refuse(store.catalog, row, "1@h", "full", now=store.runtime.clock.now(), standby=True)
    found = http.get(MEANS).json()
    assert (found["standby_state"], found["standby_refused"]) == ("none", "host 1@h has no room: full")


def test_where_a_query_starts_over_is_kept_as_it_was_given(http: httpx.Client, store: Store) -> None:
    def restart() -> QueryRestart | None:
        with store.catalog.reading() as txn:
            row = txn.state(QUERY, "means")
        assert row is not None
        return row.restart

    http.put(MEANS, content=SQL, params={"from": "1700000000000000", "by": "event"})
    assert restart() == QueryRestart(("2023-11-14T22:13:20+00:00",), "event", False)
    http.put(MEANS, json={"sql": SQL, "from": ["head", 1700000000000001], "replace": True})
    assert restart() == QueryRestart(("head", "2023-11-14T22:13:20.000001+00:00"), "append", True)


def test_an_idempotency_key_is_a_request_id(http: httpx.Client) -> None:
    once = {"Idempotency-Key": "once"}
    assert http.put(MEANS, content=SQL, headers=once).json()["version"] == 1
    assert http.put(MEANS, content="other").json()["version"] == 2
    assert http.put(MEANS, content=SQL, headers=once).json()["version"] == 2  # it was done already
    other = http.put(MEANS, content="third", headers=once)
    assert (other.status_code, other.json()["code"]) == (422, "request_mismatch")
    for verb in ("start", "stop", "rollback"):
        key = {"Idempotency-Key": verb}
        assert http.post(f"{MEANS}/{verb}", headers=key).json() == http.post(f"{MEANS}/{verb}", headers=key).json()


def test_a_query_is_stopped_started_and_rolled_back(http: httpx.Client) -> None:
    for text in ("one", "two", "three"):
        http.put(MEANS, content=text)
    assert http.post(f"{MEANS}/stop").json()["state"] == "stopped"
    assert http.post(f"{MEANS}/stop", json={"now": True}).json()["state"] == "stopped"
    assert http.post(f"{MEANS}/start").json()["state"] == "waiting"
    assert http.post(f"{MEANS}/rollback").json()["version"] == 2
    rolled = http.post(f"{MEANS}/rollback", json={"version": 1, "from": "head", "replace": True})
    assert rolled.json()["version"] == 1
    page = http.get(f"{MEANS}/versions", params={"limit": 2}).json()
    assert [(each["number"], each["sql"]) for each in page["items"]] == [(1, "one"), (2, "two")]
    assert [each["number"] for each in http.get(page["next"]).json()["items"]] == [3]
    assert http.post(f"{MEANS}/rollback", json={"version": 9}).json()["code"] == "query_not_found"


VALID = ValidatedQuery(
    (ValidatedStatement("out/means", 2, {"n": "int64"}, ("iot/a",), (), (), "out/means_late"),),
    (DeclaredParameter("size", "INTERVAL", None, 1),),
)
PLANNED = UpgradePlan(1, (StatementPlan("out/means", 2, "restarts", "its query has changed"),))


def as_a_host(question: QueryQuestion) -> Mapping[str, Any]:
    """What a host would answer."""
    if "wrong" in question.text:
        raise InvalidSql("no such column", line=3)
    return {"validated": VALID} if question.kind == "validate" else {"plan": PLANNED}


def test_a_host_is_asked_what_a_query_is_and_what_an_upgrade_does(http: httpx.Client, store: Store) -> None:
    def asked() -> list[QueryQuestion]:
        return open_questions(store.catalog, store.runtime.clock.now())

    def post(path: str, body: Mapping[str, Any]) -> tuple[QueryQuestion, httpx.Response]:
        with ThreadPoolExecutor(1) as threads:
            answering = threads.submit(http.post, path, json=body)
            until(lambda: asked() != [])
            (question,) = asked()
            answer(store.catalog, question, lambda: as_a_host(question))
            return question, answering.result(60)

    question, found = post("/v1/queries:validate", {"sql": SQL, "parameters": {"size": "1 second"}})
    assert (question.text, question.parameters) == (SQL, {"size": "1 second"})
    assert found.json() == {
        "statements": [
            {
                "target": "out/means",
                "line": 2,
                "columns": {"n": "int64"},
                "sources": ["iot/a"],
                "tables": [],
                "sides": [],
                "late": "out/means_late",
                "feedback": [],
            }
        ],
        "parameters": [{"name": "size", "type": "INTERVAL", "default": None, "line": 1}],
    }
    _, found = post("/v1/queries:validate", {"sql": "wrong"})
    assert (found.status_code, found.json()["code"]) == (400, "invalid_sql")
    assert found.json()["detail"].startswith("line 3: no such column")
    http.put(MEANS, json={"sql": SQL, "parameters": {"size": "7 seconds"}})
    question, found = post(f"{MEANS}/plan", {"sql": "other"})
    assert (question.name, question.parameters) == ("means", {"size": "7 seconds"})
    assert found.json() == {
        "version": 1,
        "statements": [
            {"target": "out/means", "line": 2, "verdict": "restarts", "reason": "its query has changed"},
        ],
    }
    assert http.post("/v1/queries/none/plan", json={"sql": "other"}).json()["code"] == "query_not_found"
    assert "expected the query's SQL as 'sql'" in http.post(f"{MEANS}/plan", json={}).json()["detail"]
    assert asked() == []


def test_a_question_that_no_host_answers_is_withdrawn(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_HEARD_S", 0.2)
    refused = http.post("/v1/queries:validate", json={"sql": SQL})
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert "no host has taken the question within 0.2 s" in refused.json()["detail"]
    assert open_questions(store.catalog, store.runtime.clock.now()) == []


def test_an_upgrade_is_a_version_that_keeps_parameters_and_state(http: httpx.Client, store: Store) -> None:
    http.put(MEANS, json={"sql": SQL, "parameters": {"size": "7 seconds"}, "trigger": "5s"})
    upgraded = http.post(f"{MEANS}/upgrade", json={"sql": f"{SIZE}other"}, headers={"Idempotency-Key": "u"}).json()
    assert upgraded["version"] == 2
    assert http.post(f"{MEANS}/upgrade", json={"sql": f"{SIZE}other"}).json()["version"] == 2
    version = store.queries.versions("means")[1]
    assert (version.text, version.parameters, version.trigger_us) == (f"{SIZE}other", {"size": "7 seconds"}, 5_000_000)

    def restart() -> QueryRestart | None:
        with store.catalog.reading() as txn:
            row = txn.state(QUERY, "means")
        assert row is not None
        return row.restart

    assert restart() == QueryRestart((), upgrade=True)
    http.post(f"{MEANS}/upgrade", json={"sql": f"{SIZE}third", "from": "head", "replace": True})
    assert restart() == QueryRestart(("head",), replace=True, upgrade=True)


def test_lists_have_pages(http: httpx.Client) -> None:
    for name in ("c", "a", "b"):
        http.put(f"/v1/queries/{name}", content="x")
    page = http.get("/v1/queries", params={"limit": 2}).json()
    assert [each["name"] for each in page["items"]] == ["a", "b"]
    rest = http.get(page["next"]).json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == (["c"], None)


def test_a_query_shows_how_far_it_is(http: httpx.Client, store: Store) -> None:
    http.put(MEANS, content=SQL)
    hosted = Hosted(store, "means")
    progress = {"target": "out/means", "state": "running", "batch": 7, "lag": 3, "watermark_us": 1_767_225_600_000_000}
    hosted.prepare("out/means", progress=(progress,))
    hosted.report("running")
    shown = http.get(MEANS).json()
    assert (shown["state"], shown["host"], shown["results"]) == ("running", "4711@host-1", ["out/means"])
    statement = {
        "target": "out/means",
        "state": "running",
        "batch": 7,
        "lag": 3,
        "watermark": "2026-01-01T00:00:00+00:00",
    }
    assert shown["progress"] == [statement]
    assert http.get(f"{MEANS}/progress").json() == {"state": "running", "statements": [statement]}


def test_a_query_that_starts_at_a_time_without_a_zone_is_deployed(http: httpx.Client) -> None:
    answer = http.put(MEANS, content=SQL, params={"from": "2026-01-01"})
    assert answer.status_code == 201, answer.text


def test_a_query_whose_watermark_is_beyond_the_year_9999_is_shown(http: httpx.Client, store: Store) -> None:
    http.put(MEANS, content=SQL)
    hosted = Hosted(store, "means")
    hosted.prepare("out/means", progress=({"target": "out/means", "watermark_us": 400_000_000_000_000_000},))
    hosted.report("running")
    (statement,) = http.get(MEANS).json()["progress"]
    assert statement["watermark"] == "400000000000000000 µs"


def test_the_log_of_a_query_is_read_and_followed(http: httpx.Client, store: Store) -> None:
    http.put(MEANS, content=SQL)
    assert http.get(f"{MEANS}/logs").json() == {"events": [], "cut": "head", "next": None}
    assert http.get(f"{MEANS}/logs", params={"format": "ndjson"}).text == ""
    with http.stream("GET", f"{MEANS}/logs", params={"follow": ""}) as answer:
        QueryLogs(store).note("means", "version 1 runs", version=1, epoch=1)
        assert '"message":"version 1 runs"' in next(answer.iter_lines())
    (line,) = http.get(f"{MEANS}/logs").json()["events"]
    assert (line["level"], line["message"], line["version"]) == ("info", "version 1 runs", 1)


def test_the_log_of_a_query_is_bounded_from_its_first_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that ends, or loses the catalog, while it creates the log leaves none that grows for ever."""

    def lost(*_: object, **__: object) -> None:
        raise StoreUnavailable("the connection was lost")

    with monkeypatch.context() as failing:
        failing.setattr(store, "write", lost)
        failing.setattr(store.policies, "retention", lost)
        QueryLogs(store).note("bounded", "version 1 runs", version=1, epoch=1)
    retention = store.policies.retention(log_stream("bounded"))
    assert retention is not None and retention.size


def test_a_query_is_deleted_at_once_or_by_its_host(http: httpx.Client, store: Store) -> None:
    http.put(MEANS, content=SQL)
    assert http.delete(MEANS).status_code == 204
    assert http.get(MEANS).json()["code"] == "query_not_found"
    http.put(MEANS, content=SQL)
    Hosted(store, "means")
    deleted = http.delete(MEANS, params={"drop": "results"})
    assert (deleted.status_code, deleted.json()["wanted"]) == (202, "deleted")
    assert http.put(MEANS, content="other").json()["code"] == "conflict"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "SQL as 'sql'"),
        ([], "as a JSON object"),
        ({"sql": SQL, "text": "x"}, "'text' is not expected here; what may be given: 'sql', 'dialect', 'template'"),
        ({"sql": 1}, "argument 'text'"),
        ({"sql": SQL, "trigger": "soon"}, "not a duration"),
        ({"sql": SQL, "from": []}, "'from' is a place"),
        ({"sql": SQL, "from": [True]}, "'from' is a place"),
        ({"sql": SQL, "by": "luck"}, "by"),
        ({"sql": SQL, "replace": True}, "requires a place"),
        ({"sql": SQL, "parameters": {"a": 1}}, "expected member \"a\" of argument 'parameters'"),
    ],
)
def test_what_can_not_be_meant_is_refused(http: httpx.Client, store: Store, body: object, said: str) -> None:
    answer = http.put(MEANS, json=body)
    assert answer.status_code == 400 and said in answer.json()["detail"], answer.text
    assert store.queries.list() == []


def test_other_requests_that_can_not_be_meant_are_refused(http: httpx.Client, store: Store) -> None:
    assert "not UTF-8" in http.put(MEANS, content=b"\xff").json()["detail"]
    assert "not a parameter" in http.put(MEANS, content=SQL, params={"param": "x"}).json()["detail"]
    assert "not a valid name" in http.put("/v1/queries/a b", content=SQL).json()["detail"]
    assert store.queries.list() == []
    http.put(MEANS, content=SQL)
    assert "expected drop='results'" in http.delete(MEANS, params={"drop": "all"}).json()["detail"]
    assert "none" in http.post(f"{MEANS}/start", json={"now": True}).json()["detail"]
    assert "number of a version" in http.get(f"{MEANS}/versions", params={"after": "x"}).json()["detail"]
    for path in ("start", "stop", "rollback"):
        assert http.post(f"/v1/queries/none/{path}").json()["code"] == "query_not_found"
    for path in ("", "/versions", "/progress", "/logs"):
        assert http.get(f"/v1/queries/none{path}").json()["code"] == "query_not_found"


FLINK = "INSERT INTO out.warm SELECT device, celsius FROM iot.sensors WHERE celsius > 20;"
CREATED = "CREATE STREAM out.warm AS\nSELECT\n  device,\n  celsius\nFROM STREAM iot.sensors\nWHERE\n  celsius > 20;\n"


def test_sql_of_another_system_is_deployed_as_its_translation(http: httpx.Client, store: Store) -> None:
    assert http.put(MEANS, json={"sql": FLINK, "dialect": "flink"}).status_code == 201
    assert http.put(MEANS, content=FLINK, params={"dialect": "flink"}).json()["version"] == 1, "it is the same"
    assert [each.text for each in store.queries.versions("means")] == [CREATED]
    begun = http.post(
        f"{MEANS}/upgrade", json={"sql": f"{FLINK}{FLINK.replace('warm', 'hot')}", "dialect": "flink", "replay": "head"}
    )
    assert begun.status_code == 202, begun.text
    replayed = CREATED.removesuffix("\n") + "\n\n" + CREATED.replace("warm", "hot")
    assert [each.text for each in store.queries.versions("means-replay-2")] == [replayed]


@pytest.mark.parametrize("path", ["", "/upgrade", "/plan"])
def test_what_has_no_translation_is_refused_at_its_line(http: httpx.Client, path: str) -> None:
    send = http.post if path else http.put

    def refused(**body: Any) -> str:
        answer = send(f"{MEANS}{path}", json=body)
        assert answer.status_code == 400, answer.text
        return str(answer.json()["detail"])

    assert refused(sql="SELECT device\nFROM iot.sensors", dialect="flink").startswith("line 1: a pipeline must write")
    assert "line 2: " in refused(sql="INSERT INTO out.x SELECT\n nothing(1) FROM iot.sensors", dialect="flink")
    assert "expected one of flink" in refused(sql=FLINK, dialect="oracle")
    assert "'dialect'" in refused(sql=FLINK, dialect=5)
    assert "'sql'" in refused(dialect="flink")
    if not path:
        assert "or 'template'" in refused(template="rollup", dialect="flink")
    assert http.get(MEANS).status_code == 404


def test_a_query_may_begin_some_time_ago(http: httpx.Client, store: Store) -> None:
    before = store.runtime.clock.now()
    http.put(MEANS, json={"sql": SQL, "parameters": {"size": "1 hour"}, "from": "-1d"})
    with store.catalog.reading() as txn:
        row = txn.state(QUERY, "means")
    assert row is not None and row.restart is not None
    (place,) = row.restart.places
    ago = before - datetime.fromisoformat(place).timestamp() * 1e6
    assert 86_400_000_000 - 60_000_000 < ago <= 86_400_000_001
    keyed = http.put(MEANS, json={"sql": SQL, "from": "-1d"}, headers={"Idempotency-Key": "once"})
    assert "give 'from' as the time itself" in keyed.json()["detail"]


def test_a_replay_is_a_query_until_it_takes_over(http: httpx.Client, store: Store) -> None:
    http.put(MEANS, json={"sql": SQL, "parameters": {"size": "1 hour"}})
    begun = http.post(f"{MEANS}/upgrade", json={"sql": f"{SIZE}other", "replay": "head", "keep": False})
    assert begun.status_code == 202
    replay = begun.json()
    assert (replay["name"], replay["replaces"], replay["version"]) == ("means-replay-2", "means", 2)
    assert store.queries.get("means").version == 1
    assert dict(store.queries.versions("means-replay-2")[0].parameters) == {"size": "1 hour"}
    for path, body in (
        ("", {"sql": f"{SIZE}third"}),
        ("/upgrade", {"sql": f"{SIZE}third"}),
        ("/upgrade", {"sql": f"{SIZE}x", "replay": "head"}),
    ):
        refused = http.request("POST" if path else "PUT", f"{MEANS}{path}", json=body)
        assert (refused.status_code, "is being replayed by 'means-replay-2'" in refused.text) == (409, True), path
    assert "is a replay that will replace 'means'" in http.put(f"{MEANS}-replay-2", json={"sql": "y"}).text
    unknown = http.post(f"{MEANS}/upgrade", json={"sql": "x", "replay": "head", "from": "head"})
    assert (unknown.status_code, "'from' is not expected here" in unknown.text) == (400, True)
    assert http.delete(MEANS).status_code == 204
    assert [info.name for info in store.queries.list()] == [], "its replay goes with it"


def test_a_query_is_deployed_with_files_that_are_given_back(http: httpx.Client, store: Store) -> None:
    model = b'{"slope": 2}'
    files = {"model.json": base64.b64encode(model).decode(), "empty.txt": ""}
    assert http.put(MEANS, json={"sql": SQL, "files": files}).json()["version"] == 1
    assert http.put(MEANS, json={"sql": SQL}).json()["version"] == 2
    first, second = http.get(f"{MEANS}/versions").json()["items"]
    assert first["files"][1] == {
        "name": "model.json",
        "kind": "resource",
        "digest": hashlib.sha256(model).hexdigest(),
        "size": len(model),
    }
    assert (second["files"], second["signature"]) == ([], None)
    got = http.get(f"{MEANS}/files/model.json", params={"version": 1})
    assert (got.content, got.headers["content-type"]) == (model, "application/octet-stream")
    assert http.get(f"{MEANS}/files/model.json").status_code == 400
    assert http.get(f"{MEANS}/files/model.json", params={"version": 3}).status_code == 404
    upgraded = http.post(f"{MEANS}/upgrade", json={"sql": SQL, "files": {"model.json": files["model.json"]}})
    assert upgraded.json()["version"] == 3
    assert store.queries.file("means", "model.json") == model


@pytest.mark.parametrize(
    "files", ["x", ["x"], {"a": 1}, {"a": "not base64"}, {"../a": ""}, {"a.whl": ""}, {"a.wasm": "AAAA"}]
)
def test_files_that_are_not_deployed(http: httpx.Client, files: Any) -> None:
    answer = http.put(MEANS, json={"sql": SQL, "files": files})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), answer.text
    assert http.get(MEANS).status_code == 404


@pytest.mark.parametrize(
    ("sql", "given", "said"),
    [
        (SQL, {"most": "1"}, "the SQL declares no parameter 'most'; it declares size, least"),
        (SQL, {"size": "wide"}, "line 1: parameter 'size' is of type INTERVAL, not 'wide'"),
        (
            SIZE.replace("DEFAULT '1 second'", ""),
            {},
            "these parameters have no default, so they need values: size (of a window)",
        ),
        ("DECLARE PARAMETER size LENGTH; SELECT", {}, "with a type of STRING"),
    ],
)
def test_parameters_are_checked_when_a_query_is_deployed_or_upgraded(
    http: httpx.Client, store: Store, sql: str, given: Mapping[str, str], said: str
) -> None:
    body = {"sql": sql, "parameters": given}
    for make in (
        lambda: http.put(MEANS, json=body),
        lambda: http.put(MEANS, content=sql, params={"param": [f"{name}={value}" for name, value in given.items()]}),
    ):
        refused = make()
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_sql"), refused.text
        assert said in refused.json()["detail"]
    assert store.queries.list() == []
    http.put(MEANS, json={"sql": "SELECT"})
    for further in ({}, {"replay": "head"}):
        assert said in http.post(f"{MEANS}/upgrade", json={**body, **further}).json()["detail"]
    assert [(info.name, info.version) for info in store.queries.list()] == [("means", 1)]


def test_templates_are_resources(http: httpx.Client, store: Store) -> None:
    assert "rollup" in [each["name"] for each in http.get("/v1/templates").json()["items"]]
    rollup = http.get("/v1/templates/rollup").json()
    assert rollup["saved_at"] is None and rollup["parameters"][0]["name"] == "source"
    values = {"source": "iot/sensors", "target": "iot/means", "key": "device", "time": "at"}
    refused = http.put(MEANS, json={"template": "rollup", "parameters": values})
    assert (refused.status_code, http.get(MEANS).status_code) == (400, 404)
    assert refused.json()["detail"].endswith("so they need values: value (the measured number; nulls are left out)")
    typed = http.put(MEANS, json={"template": "rollup", "parameters": {**values, "value": "celsius", "size": "wide"}})
    assert (typed.status_code, typed.json()["code"], http.get(MEANS).status_code) == (400, "invalid_sql", 404)
    deployed = http.put(MEANS, json={"template": "rollup", "parameters": {**values, "value": "celsius"}})
    assert (deployed.status_code, store.queries.versions("means")[0].text) == (201, rollup["sql"])
    saved = http.put("/v1/templates/mine", content="-- Mine.\nSELECT")
    assert (saved.json()["description"], http.get("/v1/templates/mine").json()) == ("Mine.", saved.json())
    assert http.delete("/v1/templates/mine").status_code == 204
    missing = http.put(MEANS, json={"template": "mine"})
    assert (missing.status_code, missing.json()["code"]) == (404, "template_not_found")
    assert http.put(MEANS, json={"template": "rollup", "sql": SQL}).status_code == 400
    assert http.put(MEANS, json={}).status_code == 400
    assert http.delete("/v1/templates/rollup").status_code == 400
    refused = http.put("/v1/templates/mine", json={"sql": SQL})  # a template isn't sent as JSON
    assert refused.json()["detail"] == "the body looks like JSON, not SQL; send the SQL alone"
