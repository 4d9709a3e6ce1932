"""Hostile bodies, names and parameters over HTTP: each is refused with a 4xx, and the broker goes on answering others."""

from __future__ import annotations

import base64
import io
import json
import time
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.store import Store

SQL = "CREATE STREAM out.q AS SELECT a FROM STREAM s.t"
QUERY = "/v1/queries/q"
DEEP = 10_000


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def zipped(*paths: str) -> bytes:
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as archive:
            for path in paths:
                archive.writestr(path, "x")
        return buffer.getvalue()


WHEEL = "a-1-py3-none-any.whl"
BODIES: Mapping[str, Any] = {
    "no SQL": {},
    "SQL of 2 MB": {"sql": "SELECT a " * 250_000},
    "half a surrogate pair": {"sql": "SELECT '\ud800'"},
    "a number of 5,000 digits": {"sql": f"SELECT {'1' * 5_000}"},
    "a number as SQL": {"sql": 5},
    "a list as SQL": {"sql": ["SELECT"]},
    "a list as parameters": {"sql": SQL, "parameters": [1]},
    "a number as a parameter": {"sql": SQL, "parameters": {"a": 5}},
    "an object as a parameter": {"sql": SQL, "parameters": {"a": {"b": "c"}}},
    "10,000 parameters": {"sql": SQL, "parameters": {f"p{n}": "x" for n in range(10_000)}},
    "a parameter of 2 MB": {"sql": SQL, "parameters": {"a": "x" * (2 << 20)}},
    "a parameter that is not declared": {"sql": SQL, "parameters": {"x" * 50_000: "x"}},
    "1,000 parameters without values": {
        "sql": "".join(f"DECLARE PARAMETER p{n} INT; -- {'x' * 500}\n" for n in range(1_000))
    },
    "a value that is no number": {"sql": f"DECLARE PARAMETER a INT; {SQL}", "parameters": {"a": "9" * 500_000}},
    "a parameter that is not Unicode": {"sql": SQL, "parameters": {"a": "\ud800"}},
    "an endless trigger": {"sql": SQL, "trigger": "9" * 5_000 + "s"},
    "a negative trigger": {"sql": SQL, "trigger": -1},
    "a trigger beyond time": {"sql": SQL, "trigger": 1 << 200},
    "a million processors": {"sql": SQL, "cpus": 1e300},
    "memory beyond numbers": {"sql": SQL, "memory": "9" * 400 + "TB"},
    "a group that leads out": {"sql": SQL, "group": "../../etc"},
    "a place of 5,000 digits": {"sql": SQL, "from": "9" * 5_000},
    "a place that is an object": {"sql": SQL, "from": {"a": 1}},
    "a signature of 1 MB": {"sql": SQL, "signature": "ed25519:" + "A" * (1 << 20)},
    "files as a list": {"sql": SQL, "files": ["a"]},
    "a file that is no base64": {"sql": SQL, "files": {"a.json": "!"}},
    "a file that leads out": {"sql": SQL, "files": {"../a.json": ""}},
    "a file with an absolute name": {"sql": SQL, "files": {"/etc/passwd": ""}},
    "100 files": {"sql": SQL, "files": {f"f{n}.json": "" for n in range(100)}},
    "a wheel of garbage": {"sql": SQL, "files": {WHEEL: encoded(bytes(10_000))}},
    "a wheel that leads out": {"sql": SQL, "files": {WHEEL: encoded(zipped("../a.py"))}},
    "a wheel with an absolute path": {"sql": SQL, "files": {WHEEL: encoded(zipped("/etc/a.py"))}},
    "a module of garbage": {"sql": SQL, "files": {"a.wasm": encoded(bytes(1_000))}},
    "a module of 5 MB": {"sql": SQL, "files": {"a.wasm": encoded(b"\0asm" + bytes(5 << 20))}},
    "an unknown member": {"sql": SQL, "sudo": True},
}
RAW: Mapping[str, bytes] = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"sql":' * DEEP + b"1" + b"}" * DEEP,
    "half an object": b'{"sql": "SEL',
    "a member twice": b'{"sql": "a", "sql": "b"}',
    "NaN": b'{"sql": "a", "cpus": NaN}',
    "a number of 5,000 digits": b'{"sql": "a", "trigger": ' + b"9" * 5_000 + b"}",
    "garbage": bytes(range(256)) * 40,
    "nothing": b"",
    "text": b'"SELECT"',
}


def refused(answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text[:300])
    problem = answer.json()
    assert problem["detail"] and len(answer.content) < 3_000, "the answer repeats what was sent"


@pytest.mark.parametrize("what", BODIES)
def test_a_hostile_body_is_refused(http: httpx.Client, store: Store, what: str) -> None:
    body = json.dumps(BODIES[what]).encode()
    headers = {"Content-Type": "application/json"}
    refused(http.put(QUERY, content=body, headers=headers))
    assert store.queries.list() == []


@pytest.mark.parametrize("what", RAW)
def test_a_body_that_is_no_query_is_refused(http: httpx.Client, what: str) -> None:
    for method, path in (("PUT", QUERY), ("POST", "/v1/queries:validate"), ("POST", f"{QUERY}/upgrade")):
        refused(http.request(method, path, content=RAW[what], headers={"Content-Type": "application/json"}))


def test_sql_that_is_no_text_or_too_long_is_refused(http: httpx.Client) -> None:
    refused(http.put(QUERY, content=b"SELECT \xff\xfe"))
    answer = http.put(QUERY, content=b"SELECT a " * (10 << 17))
    assert answer.status_code == 413, answer.text[:300]
    answer = http.put(QUERY, content=iter([b"x" * (1 << 20)] * ((limits.HTTP_BODY_BYTES_MAX >> 20) + 1)))
    assert answer.status_code == 413, answer.text[:300]
    refused(http.put("/v1/templates/t", content=b"SELECT \xff"))
    assert http.put("/v1/templates/t", content=b"SELECT a " * (10 << 17)).status_code == 413


@pytest.mark.parametrize(
    "name",
    ["..", "%2e%2e%2fetc", "a%2fb", "a%00b", "%ff", "a b", "'%3B%20DROP%20TABLE%20x%3B--", "x" * 5_000, "%F0%9F%98%80", "-a", "a%0d%0ab"],
)  # fmt: skip
def test_odd_names_are_refused(http: httpx.Client, store: Store, name: str) -> None:
    refused(http.put(f"/v1/queries/{name}", content=SQL))
    refused(http.put(f"/v1/templates/{name}", content=SQL))
    for path in ("", "/versions", "/progress", "/results", "/state?key=a", "/files/..%2f..%2fetc", "/files/a%00b"):
        assert 400 <= http.get(f"/v1/queries/{name}{path}").status_code < 500
    assert store.queries.list() == []


def test_values_of_parameters_are_kept_as_they_are(http: httpx.Client, store: Store) -> None:
    values = {"a": "'; DROP TABLE x; --", "b": '"; SELECT 1', "c": "\0\r\n\u202e\U0001f600", "'; DROP": "1", "ü`": "x"}
    declared = "".join(f"DECLARE PARAMETER `{name.replace('`', '``')}` STRING;\n" for name in values)
    assert http.put(QUERY, json={"sql": declared + SQL, "parameters": values, "start": False}).status_code == 201
    assert dict(store.queries.versions("q")[0].parameters) == values


NESTED = "(" * DEEP + "1" + ")" * DEEP
STATEMENTS = {
    "10 MB": "SELECT a FROM t " * 650_000,
    "brackets": f"SELECT {NESTED} FROM t",
    "brackets that are not closed": f"SELECT {'(' * DEEP}",
    "statements": "SELECT a FROM t;" * 5_000,
    "a long condition": f"SELECT a FROM t WHERE {' AND '.join(['a = 1'] * DEEP)}",
    "comments that are not closed": "SELECT a" + "/* /" * 60_000,
    "a quote that is not closed": "SELECT 'a FROM t",
    "a NUL": "SELECT a\0b FROM t",
    "a long number": f"SELECT {'9' * 5_000} FROM t",
    "a large number": f"SELECT a FROM t WHERE time > {'9' * 900}",
    "a pattern that takes memory": "SELECT a FROM t WHERE b =~ /((a{1000}){1000}){1000}/",
    "large windows": "SELECT mean(a) FROM t GROUP BY time(15000000w)",
    "text from right to left": "SELECT \u202e FROM t",
    "a large limit": f"SELECT a FROM t LIMIT {'9' * 300}",
}
PROMQL = {
    "10 MB": "a + " * 2_500_000 + "a",
    "brackets": NESTED,
    "signs": "-" * DEEP + "1",
    "calls": "abs(" * DEEP + "a" + ")" * DEEP,
    "a long sum": "+".join("a" * DEEP),
    "a quote that is not closed": '{a="',
    "a NUL": '{a="\0\0"',
    "a long number": "9" * 5_000,
    "a large range": f"rate(a[{'9' * 30}w])",
    "a pattern that takes memory": '{a=~"((a{1000}){1000}){1000}"}',
    "text from right to left": "\u202e",
}


@pytest.mark.parametrize("what", STATEMENTS)
def test_hostile_influxql_is_refused(http: httpx.Client, store: Store, what: str) -> None:
    store.scopes.create("db")
    answer = http.post("/query", params={"db": "db"}, data={"q": STATEMENTS[what]})
    if answer.status_code != 200:
        assert answer.status_code in (400, 413) and answer.json()["error"], answer.text[:300]
        assert len(answer.content) < 3_000
    else:
        assert all("error" in each or "series" not in each for each in answer.json()["results"]), answer.text[:300]
    assert (
        http.post("/query", params={"db": "db", "params": "[" * DEEP}, data={"q": "SELECT a FROM t"}).status_code == 400
    )
    number = '{"a": ' + "9" * 5_000 + "}"
    assert http.post("/query", params={"db": "db", "params": number}, data={"q": "SELECT $a FROM t"}).status_code in (
        200,
        400,
    )


@pytest.mark.parametrize("what", PROMQL)
def test_hostile_promql_is_refused(http: httpx.Client, store: Store, what: str) -> None:
    store.scopes.create("db")
    for path, more in (("query", {}), ("query_range", {"start": "0", "end": "10", "step": "5"})):
        answer = http.post(f"/prometheus/db/api/v1/{path}", data={"query": PROMQL[what], **more})
        assert answer.status_code in (400, 413, 422), answer.text[:300]
        assert answer.json()["error"] and len(answer.content) < 3_000
    for given in ({"time": "9" * 5_000}, {"timeout": "9" * 5_000 + "s"}, {"time": "nan"}):
        answer = http.post("/prometheus/db/api/v1/query", data={"query": "1", **given})
        assert answer.status_code == 400, (given, answer.text[:300])


def test_an_expression_of_as_many_operators_as_there_may_be_is_answered(http: httpx.Client) -> None:
    assert http.post("/query", data={"q": "CREATE DATABASE db"}).status_code == 200
    assert http.post("/write", params={"db": "db"}, content="t,h=x a=1,b=2 1\nt,h=y a=7 2").status_code == 204
    either = " OR ".join(f"h = 'h{n}'" for n in range(limits.INFLUXQL_OPERATORS_MAX // 2 - 1)) + " OR h = 'x'"
    for field in ("a", f"a + {' + '.join(['b'] * limits.INFLUXQL_OPERATORS_MAX)}", "mean(a)"):
        asked = {"db": "db", "q": f"SELECT {field} FROM t WHERE {either if '+' not in field else 'a < 5'}"}
        (result,) = http.post("/query", data=asked).json()["results"]
        assert result["series"][0]["values"], result


def test_verbs_do_not_wait_for_queries_that_do_not_end(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSLATION_S_MAX", 4.0)
    monkeypatch.setattr(limits, "QUERY_QUEUE_S", 5.0)
    endless = {
        "SELECT count(*) AS n FROM range(100000000) a, range(100000000) b": None,
        f"SELECT {'ARRAY[' * 30}1{']' * 30}": "trino",
    }

    def ask(sql: str, dialect: str | None) -> None:
        with suppress(httpx.ReadTimeout):  # going ends the query
            http.post("/v1/query", json={"sql": sql, "dialect": dialect}, timeout=6)

    with ThreadPoolExecutor(40) as threads:
        sent = [threads.submit(ask, *each) for each in [*endless.items()] * 20]
        longest = 0.0
        while not all(each.done() for each in sent):
            begun = time.monotonic()
            assert http.put("/v1/queries/good", content=SQL).status_code in (200, 201)
            longest = max(longest, time.monotonic() - begun)
        for each in sent:
            each.result()
    assert longest < limits.QUERY_QUEUE_S, "as long as a query waits for its turn"


def test_a_neighbour_is_answered_while_hostile_requests_are(http: httpx.Client, store: Store) -> None:
    store.scopes.create("db")
    store.streams.create("db/t", schema=pa.schema([("a", pa.float64())]))
    deep = {"Content-Type": "application/json"}
    hostile = [
        lambda: http.post("/query", params={"db": "db"}, data={"q": "SELECT a" + "/* /" * 60_000}),
        lambda: http.post(
            "/query", params={"db": "db"}, data={"q": f"SELECT a FROM t WHERE {'a = 1 OR ' * 20_000} a = 1"}
        ),
        lambda: http.put(QUERY, content=RAW["deep objects"], headers=deep),
        lambda: http.put(QUERY, content=json.dumps(BODIES["10,000 parameters"]), headers=deep),
        lambda: http.post("/prometheus/db/api/v1/query", data={"query": PROMQL["brackets"]}),
    ]
    with ThreadPoolExecutor(len(hostile)) as threads:
        sent = [threads.submit(each) for each in hostile * 4]
        answered = 0
        while not all(each.done() for each in sent) or answered < 5:
            assert http.put("/v1/queries/good", content=SQL).status_code in (200, 201)
            assert http.get("/v1/queries/good").json()["name"] == "good"
            answered += 1
        assert all(400 <= each.result().status_code < 500 for each in sent)
