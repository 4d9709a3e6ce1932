"""`POST /v1/query`: SQL over HTTP, in each form of an answer, in other dialects, and by callers who may not read everything."""

from __future__ import annotations

import io
import json
import socket
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch import limits
from anabranch.errors import PermissionDenied
from anabranch.security.guard import OpenGuard, Principal
from anabranch.store import Store
from tests.server.http.serving import COLUMNS, Serving, serving
from tests.waiting import PATIENCE_S, until

HOT = "SELECT sensor, count FROM iot.sensors WHERE value > 20 ORDER BY count"
ARROW, PARQUET, NDJSON = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet", "application/x-ndjson"


@pytest.fixture(autouse=True)
def events(store: Store) -> None:
    rows = [{"sensor": "ab"[n % 2], "value": 18.0 + n, "count": n, "data": b"\xff"} for n in range(6)]
    with store.writer("iot/sensors") as writer:
        writer.write_batch(pa.Table.from_pylist(rows, schema=COLUMNS))


def ask(http: httpx.Client, sql: str, accept: str = "application/json", **members: Any) -> httpx.Response:
    return http.post("/v1/query", json={"sql": sql, **members}, headers={"Accept": accept})


def test_the_result_comes_in_each_form(http: httpx.Client) -> None:
    rows = [{"sensor": "b", "count": 3}, {"sensor": "a", "count": 4}, {"sensor": "b", "count": 5}]
    answer = ask(http, HOT)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "columns": [{"name": "sensor", "type": "string"}, {"name": "count", "type": "int64"}],
        "rows": rows,
    }
    lines = ask(http, HOT, NDJSON)
    assert lines.headers["content-type"] == NDJSON
    assert [httpx.Response(200, text=line).json() for line in lines.text.splitlines()] == rows
    assert pa.ipc.open_stream(ask(http, HOT, ARROW).content).read_all().to_pylist() == rows
    assert pq.read_table(io.BytesIO(ask(http, HOT, PARQUET).content)).to_pylist() == rows
    assert ask(http, HOT, "text/event-stream").status_code == 406
    named = http.post("/v1/query?format=ndjson", content=HOT)
    assert named.text == lines.text


@pytest.mark.parametrize("accept", [NDJSON, ARROW, PARQUET, "application/json"])
def test_a_result_without_rows_is_whole(http: httpx.Client, accept: str) -> None:
    answer = ask(http, f"{HOT} LIMIT 0", accept)
    assert answer.status_code == 200
    if accept == ARROW:
        assert pa.ipc.open_stream(answer.content).read_all().schema.names == ["sensor", "count"]
    elif accept == PARQUET:
        assert pq.read_table(io.BytesIO(answer.content)).num_rows == 0
    elif accept == NDJSON:
        assert answer.content == b""
    else:
        assert answer.json()["rows"] == []


def test_the_body_may_be_sql_itself(http: httpx.Client) -> None:
    answer = http.post("/v1/query", content="SELECT count(*) AS n FROM iot.sensors")
    assert answer.json()["rows"] == [{"n": 6}]
    trino = http.post(
        "/v1/query?dialect=trino", content="SELECT try_cast(sensor AS bigint) AS n FROM iot.sensors LIMIT 1"
    )
    assert trino.json()["rows"] == [{"n": None}]
    refused = http.post("/v1/query", content='{"sql": "SELECT 1"}')
    assert "send JSON with Content-Type: application/json" in refused.json()["detail"]
    assert "not UTF-8" in http.post("/v1/query", content=b"SELECT '\xff'").json()["detail"]


def test_sql_of_another_system_is_translated_and_refused_at_its_line(http: httpx.Client) -> None:
    counted = "SELECT sensor, COUNTIF(value > 20) AS hot FROM iot.sensors GROUP BY sensor ORDER BY sensor"
    rows = [{"sensor": "a", "hot": 1}, {"sensor": "b", "hot": 2}]
    assert ask(http, counted, dialect="bigquery").json()["rows"] == rows
    safe = "SELECT SAFE_CAST(sensor AS INT64) AS n FROM iot.sensors LIMIT 1"
    assert ask(http, safe, dialect="bigquery").json()["rows"] == [{"n": None}]
    assert ask(http, safe).json()["code"] == "invalid_sql", "it is no SQL of DuckDB's"
    months = "SELECT sensor,\n date_diff('month', min(at), max(at)) FROM iot.sensors GROUP BY 1"
    refused = ask(http, months, dialect="trino")
    assert (refused.status_code, refused.json()["code"], refused.json()["fields"]["line"]) == (400, "invalid_sql", 2)
    assert "use days" in refused.json()["detail"]
    unknown = ask(http, HOT, dialect="oracle").json()
    assert (unknown["code"], "expected one of flink" in unknown["detail"]) == ("invalid_argument", True)
    writes = ask(http, "INSERT INTO iot.raw SELECT * FROM iot.sensors", dialect="flink")
    assert "a query can't write to a stream" in writes.json()["detail"]


ENDLESS = f"SELECT {'ARRAY[' * 24}1{']' * 24} FROM iot.sensors"  # each bracket doubles the time of its parser


def test_a_translation_that_takes_too_long_is_ended(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSLATION_S_MAX", 1.0)
    queries = fronts_of(monkeypatch)
    job = f"INSERT INTO iot.raw {ENDLESS}"
    for answer in (
        ask(http, ENDLESS, dialect="trino"),
        http.post("/v1/run", json={"steps": [{"call": "query", "arguments": {"sql": ENDLESS, "dialect": "trino"}}]}),
        http.put("/v1/queries/endless", json={"sql": job, "dialect": "trino"}),
    ):
        assert answer.json()["code"] == "query_limit_exceeded", answer.text
        assert "could not be translated within 1 s" in answer.json()["detail"]
        assert queries[0]._used == 0
    assert ask(http, "SELECT count(*) AS n FROM iot.sensors", dialect="trino").json()["rows"] == [{"n": 6}]


def test_sums_of_integers_are_numbers_as_far_as_they_fit(http: httpx.Client) -> None:
    sums = "SELECT sum(count) AS n, sum(1.5) AS d FROM iot.sensors"
    assert ask(http, sums).json()["rows"] == [{"n": 15, "d": "9.0"}]
    wide = "SELECT sum(n) AS n FROM (VALUES (9223372036854775807), (1)) AS t(n)"
    assert ask(http, wide).json()["rows"] == [{"n": "9223372036854775808"}]


def test_parameters_are_values_and_never_sql(http: httpx.Client) -> None:
    query = "SELECT count FROM iot.sensors WHERE sensor = ? AND value > $2 ORDER BY 1"
    assert ask(http, query, parameters=["a", 18.5]).json()["rows"] == [{"count": 2}, {"count": 4}]
    assert ask(http, query, parameters=["a' OR 1=1 --", 0]).json()["rows"] == []
    kinds = ask(http, "SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d", parameters=[None, True, 1.5, "x"])
    assert kinds.json()["rows"] == [{"a": None, "b": True, "c": 1.5, "d": "x"}]
    assert ask(http, "SELECT COUNTIF(count > ?) AS n FROM iot.sensors", dialect="bigquery", parameters=[3]).json()[
        "rows"
    ] == [{"n": 2}]
    assert ask(http, query, parameters=["a"]).json()["code"] == "invalid_sql"
    assert "texts, numbers, true, false or null" in ask(http, query, parameters=[["a"], 1]).json()["detail"]
    assert ask(http, "SELECT ? AS n", parameters=[1 << 70]).status_code == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "expected the query as 'sql'"),
        ({"sql": 5}, "'sql'"),
        ({"sql": "SELECT 1", "dialect": 5}, "'dialect'"),
        ({"sql": "SELECT 1", "parameters": {"a": 1}}, "'parameters'"),
        ({"sql": "SELECT 1", "scope": "iot"}, "'scope' is not expected here; what may be given: sql, dialect, parameters"),
        (["SELECT 1"], "the body"),
        ({"sql": ""}, "the query is empty"),
        ({"sql": "SELECT 1; DROP TABLE x"}, ""),
        ({"sql": "SELECT n FROM iot.none"}, "iot.none"),
        ({"sql": "SELECT 1 AS a, 2 AS a"}, "two columns of the result are called 'a'"),
        ({"sql": "SELECT ? AS a", "parameters": ["\ud800"]}, "a parameter of the query can't be used: it is not Unicode"),
        ({"sql": "SELECT '\ud800' AS a"}, "it is not Unicode"),
        ({"sql": "SELECT * FROM read_csv('/etc/passwd')"}, ""),
        ({"sql": "COPY iot.sensors TO '/tmp/stolen.csv'"}, ""),
        ({"sql": "SELECT 1 " + "x" * limits.SQL_BYTES_MAX}, "over the limit of 262,144"),
    ],
    ids=range(15),
)  # fmt: skip
def test_what_can_not_be_run_is_one_clear_error(http: httpx.Client, body: Any, said: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = http.post("/v1/query", content=json.dumps(body), headers=headers)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]


def test_other_parameters_of_the_address_are_refused(http: httpx.Client) -> None:
    assert "has no parameter 'scope'" in http.post("/v1/query?scope=iot", content="SELECT 1").json()["detail"]
    both = http.post("/v1/query?dialect=flink", json={"sql": "SELECT 1"}).json()["detail"]
    assert "put 'dialect' into the body" in both


def test_a_large_result_is_sent_bit_by_bit_and_not_as_one_document(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "SELECT n, repeat('x', 100) AS text FROM range(120000) AS r(n)"
    refused = ask(http, many).json()
    assert (refused["code"], "ask for NDJSON, Arrow or Parquet" in refused["detail"]) == ("too_large", True)
    with http.stream("POST", "/v1/query?format=ndjson", json={"sql": many}) as answer:
        assert sum(1 for _ in answer.iter_lines()) == 120_000
    table = pa.ipc.open_stream(ask(http, many, ARROW).content).read_all()
    assert table.column("n").to_pylist() == list(range(120_000))
    assert pq.read_table(io.BytesIO(ask(http, many, PARQUET).content)).num_rows == 120_000


FAILS_LATE = "SELECT CASE WHEN n > 5900000 THEN error('too late') ELSE n END AS n FROM range(6000000) AS r(n)"


def test_an_error_in_the_midst_of_a_result_is_its_last_line(http: httpx.Client) -> None:
    whole = ask(http, "SELECT error('at once') AS n")
    assert (whole.status_code, whole.json()["code"]) == (400, "invalid_sql")
    *rows, last = ask(http, FAILS_LATE, NDJSON).text.splitlines()
    assert len(rows) > 1000
    assert '"_problem"' in last and "too late" in last
    reader = pa.ipc.open_stream(ask(http, FAILS_LATE, ARROW).content)
    *_, ending = reader.iter_batches_with_custom_metadata()
    assert b"too late" in ending.custom_metadata[b"anabranch.problem"]
    with pytest.raises(httpx.RemoteProtocolError):
        ask(http, FAILS_LATE, PARQUET)


class _NarrowReader(OpenGuard):
    def authorize(self, principal: Principal, operation: str, resource: str | None, *, verb: str = "") -> None:
        if not self.allows(principal, operation, resource):
            raise PermissionDenied(f"may not {operation} {resource}")

    def allows(self, principal: Principal, operation: str, resource: str | None) -> bool:
        return resource == "iot/sensors"


@pytest.mark.parametrize("dialect", [None, "trino"])
def test_only_streams_that_the_caller_may_read_are_there(store: Store, dialect: str | None) -> None:
    with serving(store, _NarrowReader()) as served, httpx.Client(base_url=served.url, timeout=60) as http:
        assert ask(http, "SELECT count(*) AS n FROM iot.sensors", dialect=dialect).json()["rows"] == [{"n": 6}]
        for name in ("iot.raw", "iot.none"):
            refused = ask(http, f"SELECT count(*) FROM {name}", dialect=dialect)
            assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
        assert ask(http, "SHOW TABLES").json()["rows"] == [{"name": "iot.sensors"}]


def test_nothing_is_translated_for_who_may_not_deploy_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    used = fronts_of(monkeypatch)
    with serving(store, _NarrowReader()) as served, httpx.Client(base_url=served.url, timeout=60) as http:
        for method, path in (("PUT", ""), ("POST", "/upgrade"), ("POST", "/plan")):
            body = {"sql": "INSERT INTO iot.raw SELECT * FROM iot.sensors", "dialect": "flink"}
            refused = http.request(method, f"/v1/queries/hot{path}", json=body)
            assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    assert used == []


def test_a_caller_who_goes_ends_the_query(served: Serving, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    front = fronts_of(monkeypatch)
    ask(http, "SELECT 1 AS n")  # the process of the queries has started
    (queries,) = front
    endless = b'{"sql": "SELECT count(*) AS n FROM range(100000000) a, range(100000000) b"}'
    with socket.create_connection(("127.0.0.1", served.port)) as gone:
        head = b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        gone.sendall(head % len(endless) + endless)
        until(lambda: queries._used == 1, PATIENCE_S)
    until(lambda: queries._used == 0, PATIENCE_S)


def fronts_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pools of processes that are used from now on."""
    from anabranch.query import isolated

    found: list[Any] = []
    take = isolated.IsolatedQueries._take

    def noted(self: Any) -> Any:
        if self not in found:
            found.append(self)
        return take(self)

    monkeypatch.setattr(isolated.IsolatedQueries, "_take", noted)
    return found
