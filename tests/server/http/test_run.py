"""Several verbs in one call: references, rights, errors, limits and repetition."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import PermissionDenied
from anabranch.security.guard import OpenGuard, Principal
from anabranch.store import Store
from tests.server.http.serving import COLUMNS, serving

KEY = {"Idempotency-Key": "once"}


def run(http: httpx.Client, *steps: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    return http.post("/v1/run", json={"steps": steps}, headers=headers)


def step(verb: str, called: str | None = None, /, **arguments: Any) -> dict[str, Any]:
    return {"call": verb, "arguments": arguments, **({} if called is None else {"name": called})}


def ref(path: str) -> dict[str, str]:
    return {"$ref": path}


def fill(store: Store, count: int = 3) -> None:
    with store.writer("iot/raw") as writer:
        for number in range(count):
            writer.write(str(number).encode())


def test_a_step_uses_the_results_of_earlier_ones(http: httpx.Client, store: Store) -> None:
    fill(store)
    answer = run(
        http,
        step("streams.copy", source="iot/raw", target="iot/copied"),
        step("streams.get", "made", name="iot/copied"),
        step("cuts.head", "head", name=ref("made.id")),
        step("cuts.after", "one", name=ref("made.name"), cut=ref("head"), events=1),
        step("streams.truncate", name=ref("made.name"), cut=ref("one")),
        step("cuts.distance", name="iot/copied"),
        step("scopes.list", "scopes"),
        step("streams.list", "all", scope=ref("scopes.0.name")),
        step("streams.tag", name=ref("all.0.name"), tags={"of": ref("scopes.0.name")}),
    )
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert len(results) == 9
    assert results[5]["events"] == 2 and results[1]["name"] == {"$type": "StreamName", "text": "iot/copied"}
    assert [each["name"]["text"] for each in results[7]] == ["iot/copied", "iot/raw", "iot/sensors"]
    assert store.cuts.distance("iot/copied").events == 2
    assert store.streams.get("iot/copied").tags == {"of": "iot"}


def fill_sensors(store: Store) -> None:
    rows = [{"sensor": "ab"[n % 2], "value": float(n), "count": n} for n in range(4)]
    with store.writer("iot/sensors") as writer:
        writer.write_batch(pa.Table.from_pylist(rows, schema=COLUMNS))


def test_a_step_may_be_a_query_whose_rows_later_ones_use(http: httpx.Client, store: Store) -> None:
    fill_sensors(store)
    hottest = "SELECT sensor, sum(count) AS n FROM iot.sensors WHERE value >= ? GROUP BY sensor ORDER BY n DESC"
    answer = run(
        http,
        step("query", "hot", sql=hottest, parameters=[1]),
        step("streams.copy", source="iot/sensors", target="iot/hot", keys=[ref("hot.0.sensor")]),
        step("query", sql="SELECT COUNTIF(sensor = ?) AS n FROM iot.hot", dialect="bigquery", parameters=[ref("hot.0.sensor")]),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert results[0] == [{"sensor": "b", "n": 4}, {"sensor": "a", "n": 2}]
    assert results[2] == [{"n": 2}]
    assert store.cuts.distance("iot/hot").events == 2


def test_a_query_that_fails_names_its_step(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = run(http, step("id"), step("query", sql="SELECT 1,\n nothing(2)"))
    assert (wrong.status_code, wrong.json()["code"], wrong.json()["fields"]["step"]) == (400, "invalid_sql", 2)
    dialect = run(http, step("query", sql="SELECT\n date_diff('month', a, b) FROM iot.sensors", dialect="trino"))
    assert dialect.json()["detail"].startswith("step 1, query: line 2: DATE_DIFF in whole months")
    assert "has no argument 'scope'" in run(http, step("query", sql="SELECT 1", scope="iot")).json()["detail"]
    twice = run(http, step("query", sql="SELECT 1 AS a, 2 AS a"))
    assert (twice.status_code, twice.json()["code"]) == (400, "invalid_sql")
    assert twice.json()["detail"].startswith("step 1, query: two columns of the result are called 'a'")
    together = http.post("/v1/run", json={"steps": [step("query", sql="SELECT 1")], "transaction": True})
    assert "query can't be part of a transaction" in together.json()["detail"]
    monkeypatch.setattr(limits, "RUN_ANSWER_BYTES_MAX", 500)
    large = run(http, step("query", sql="SELECT n FROM range(100) AS r(n)"))
    assert (large.status_code, large.json()["code"]) == (413, "too_large")
    monkeypatch.setattr(limits, "RUN_S_MAX", 1.0)
    endless = run(http, step("query", sql="SELECT count(*) AS n FROM range(100000000) a, range(100000000) b"))
    assert (endless.status_code, "stopped during this step" in endless.json()["detail"]) == (504, True)


def test_a_repeated_run_returns_the_rows_it_did_and_shows_them_to_readers_alone(
    http: httpx.Client, store: Store
) -> None:
    fill_sensors(store)
    steps = [
        step("query", "counted", sql="SELECT count(*) AS n FROM iot.sensors"),
        step("streams.tag", name="iot/raw", tags={"of": "sensors"}),
        step("streams.get", name="iot/raw"),
    ]
    first = run(http, *steps, headers=KEY)
    assert first.json()["results"][0] == [{"n": 4}], first.text
    fill_sensors(store)
    assert run(http, *steps, headers=KEY).json()["results"][0] == [{"n": 4}]
    with serving(store, _Nobody()) as served, httpx.Client(base_url=served.url) as other:
        for asked in (steps, [step("query", sql="SHOW TABLES")]):
            answer = run(other, *asked, headers=KEY)
            assert (answer.status_code, answer.json()["fields"]["step"]) == (403, 1)


def test_an_error_says_the_step_and_earlier_steps_stay_done(http: httpx.Client, store: Store) -> None:
    answer = run(
        http,
        step("scopes.create", name="lab"),
        step("streams.get", name="lab/none"),
        step("scopes.create", name="never"),
    )
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["fields"]["step"]) == (404, "stream_not_found", 2)
    assert problem["detail"].startswith("step 2, streams.get: stream 'lab/none' not found")
    assert problem["fields"]["stream"] == "lab/none"
    assert [scope.name for scope in store.scopes.list()] == ["iot", "lab"]


def test_in_a_transaction_all_steps_are_done_or_none(http: httpx.Client, store: Store) -> None:
    steps = [step("scopes.create", name="lab"), step("streams.move", stream="iot/raw", scope="lab")]
    body: dict[str, Any] = {"steps": [*steps, step("streams.get", name="lab/none")], "transaction": True}
    problem = http.post("/v1/run", json=body).json()
    assert (problem["code"], problem["fields"]["step"]) == ("stream_not_found", 3)
    assert [scope.name for scope in store.scopes.list()] == ["iot"] and store.streams.exists("iot/raw")
    body["steps"][2] = step("streams.create", name="iot/raw")
    first = http.post("/v1/run", json=body, headers=KEY)
    assert first.status_code == 200, first.text
    assert http.post("/v1/run", json=body, headers=KEY).json() == first.json()
    assert [str(info.name) for info in store.streams.list()] == ["iot/raw", "iot/sensors", "lab/raw"]


WRONG = [
    ({}, "a run as an object with a list of steps"),
    ([], "as a JSON object"),
    ({"steps": []}, "expected 1 to 100 steps in a run, got 0"),
    ({"steps": [step("id")] * 101}, "got 101"),
    ({"steps": [step("id")], "atomic": True}, "the members steps, request and transaction, not 'atomic'"),
    ({"steps": [step("id")], "transaction": "yes"}, "expected true or false as 'transaction'"),
    ({"steps": [step("id")], "transaction": True}, "step 1: id can't be part of a transaction"),
    ({"steps": ["id"]}, "expected step 1 as an object with the member 'call'"),
    ({"steps": [step("id"), {"call": "id", "args": {}}]}, "step 2 has the members call, arguments and name, not 'args'"),
    ({"steps": [{"call": "id", "arguments": []}]}, "the arguments of step 1"),
    ({"steps": [step("id", "a b")]}, "the name of step 1"),
    ({"steps": [step("id", "a"), step("id", "a")]}, "step 2 has the name 'a' of an earlier one"),
    ({"steps": [step("id"), step("explode")]}, "step 2: 'explode' is not a verb"),
    ({"steps": [step("id"), step("run", steps=[])]}, "step 2: 'run' is not a verb"),
    ({"steps": [step("streams.get", "a", name=ref("a"))]}, "step 1 refers to 'a', but no earlier step has that name"),
    ({"steps": [step("streams.get", name={"$ref": 1})]}, "step 1 has a reference that is not text"),
    ({"steps": [step("id", "a"), step("streams.get", name=ref("a.b"))]}, "step 2, streams.get: 'a.b' refers to 'b', but there is only: nothing"),
    ({"steps": [step("scopes.list", "a"), step("streams.get", name=ref("a.7"))]}, "there is only: 0 to 0"),
    ({"steps": [step("streams.get")]}, "step 1, streams.get: streams.get needs the argument 'name'"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said"), WRONG, ids=range(len(WRONG)))
def test_a_run_that_is_written_wrongly_is_refused(http: httpx.Client, body: Any, said: str) -> None:
    answer = http.post("/v1/run", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    assert said in answer.json()["detail"]


def test_what_is_written_wrongly_is_found_before_a_step_runs(http: httpx.Client, store: Store) -> None:
    assert run(http, step("scopes.create", name="lab"), step("explode")).status_code == 400
    assert [scope.name for scope in store.scopes.list()] == ["iot"]


class _ReaderOnly(OpenGuard):
    def authorize(self, principal: Principal, operation: str, resource: str | None, *, verb: str = "") -> None:
        if operation != "read":
            raise PermissionDenied(f"may not {operation}")


def test_each_step_needs_its_own_rights(store: Store) -> None:
    with serving(store, _ReaderOnly()) as served, httpx.Client(base_url=served.url) as http:
        assert run(http, step("streams.get", name="iot/raw")).status_code == 200
        answer = run(
            http, step("cuts.tail", "t", name="iot/raw"), step("streams.truncate", name="iot/raw", cut=ref("t"))
        )
        assert (answer.status_code, answer.json()["fields"]["step"]) == (403, 2)
        again = run(
            http,
            step("cuts.tail", "t", name="iot/raw"),
            step("streams.truncate", name="iot/raw", cut=ref("t")),
            headers=KEY,
        )
        assert again.status_code == 403
        with store.catalog.reading() as txn:
            assert txn.request("once/1") is None, "who may not change anything has nothing kept"


class _Nobody(OpenGuard):
    def authorize(self, principal: Principal, operation: str, resource: str | None, *, verb: str = "") -> None:
        raise PermissionDenied(f"may not {operation}")


def test_what_a_run_has_kept_is_shown_to_who_may_read_it(http: httpx.Client, store: Store) -> None:
    steps = step("cuts.tail", "t", name="iot/raw"), step("streams.truncate", name="iot/raw", cut=ref("t"))
    assert run(http, *steps, headers=KEY).status_code == 200
    with serving(store, _Nobody()) as served, httpx.Client(base_url=served.url) as other:
        answer = run(other, *steps, headers=KEY)
        assert (answer.status_code, answer.json()["fields"]["step"]) == (403, 1)


def test_a_repeated_run_changes_nothing_twice_and_answers_the_same(http: httpx.Client, store: Store) -> None:
    fill(store)
    steps = [
        step("cuts.tail", "tail", name="iot/raw"),
        step("streams.get", name="iot/raw"),
        step("streams.truncate", name="iot/raw", cut=ref("tail")),
        step("streams.rename", stream="iot/raw", name="iot/done"),
        step("streams.create", name="iot/raw"),
    ]
    first = run(http, *steps, headers=KEY)
    assert first.status_code == 200, first.text
    fill(store)
    again = run(http, *steps, headers=KEY)
    assert again.status_code == 200, again.text
    assert again.json()["results"][:3] == first.json()["results"][:3]
    assert store.cuts.distance("iot/raw").events == 3, "the new events are not truncated"
    other = run(http, *steps[:3], step("scopes.create", name="other"), headers=KEY)
    assert (other.status_code, other.json()["code"], other.json()["fields"]["step"]) == (422, "request_mismatch", 4)


def test_what_can_not_be_repeated_takes_no_key(http: httpx.Client, store: Store) -> None:
    assert run(http, step("collect"), headers=KEY).status_code == 200
    answer = run(http, step("scopes.create", name="lab"), step("backup", place="/nowhere"), headers=KEY)
    assert "step 2: backup can't be repeated" in answer.json()["detail"]
    answer = run(http, step("scopes.create", name="lab", request="own"), headers=KEY)
    assert "step 1 has a request id, in addition" in answer.json()["detail"]
    answer = http.post("/v1/run", json={"steps": [step("id")], "request": "other"}, headers=KEY)
    assert "differ" in answer.json()["detail"]
    assert [scope.name for scope in store.scopes.list()] == ["iot"]


def test_a_run_has_a_time_and_an_answer_of_limited_size(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RUN_ANSWER_BYTES_MAX", 500)
    answer = run(http, step("id"), step("streams.list"))
    assert (answer.status_code, answer.json()["code"], answer.json()["fields"]["step"]) == (413, "too_large", 2)
    monkeypatch.setattr(limits, "RUN_S_MAX", 0.0)
    answer = run(http, step("scopes.create", name="lab"))
    assert (answer.status_code, answer.json()["code"]) == (504, "timeout")
    assert "step 1, scopes.create: the run was stopped before this step" in answer.json()["detail"]
    assert [scope.name for scope in store.scopes.list()] == ["iot"]
