"""What `/ping`, `/query` and `/write` answer beside the results of statements."""

from __future__ import annotations

import gzip
import json
import threading

import httpx
import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import AppendUncertain, Closed, Conflict, DiskFull, StoreUnavailable
from anabranch.server.events.writers import SharedWriter
from anabranch.server.http.influx.points import PointTable
from tests.server.http.influx.data import BEGIN_S
from tests.server.http.serving import Serving


@pytest.fixture
def http(broker: Serving) -> httpx.Client:
    return httpx.Client(base_url=broker.url, timeout=60)


def write(http: httpx.Client, text: str, **parameters: str) -> httpx.Response:
    return http.post("/write", params={"db": "db", **parameters}, content=text)


def values(http: httpx.Client, statement: str, **parameters: str) -> list[list[object]]:
    found = http.get("/query", params={"db": "db", "epoch": "ns", "q": statement, **parameters}).json()
    return [row for series in found["results"][0].get("series", []) for row in series["values"]]


def test_a_ping_says_which_api_it_is(http: httpx.Client) -> None:
    for answer in (http.get("/ping"), http.head("/ping")):
        assert answer.status_code == 204 and answer.headers["X-Influxdb-Version"] == "1.6.7"


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        ("", "2023-11-14T22:13:20Z"),
        ("ns", BEGIN_S * 10**9),
        ("u", BEGIN_S * 10**6),
        ("ms", BEGIN_S * 1000),
        ("s", BEGIN_S),
    ],
)
def test_times_are_in_the_unit_that_is_asked_for(http: httpx.Client, epoch: str, expected: object) -> None:
    assert values(http, "SELECT used FROM mem LIMIT 1", epoch=epoch)[0][0] == expected


def test_a_result_comes_in_chunks(http: httpx.Client) -> None:
    asked = {
        "db": "db",
        "q": "SELECT used FROM mem GROUP BY host; SHOW DATABASES",
        "chunked": "true",
        "chunk_size": "20",
    }
    lines = [json.loads(line) for line in http.post("/query", params=asked).text.splitlines()]
    found = [line["results"][0] for line in lines]
    assert [each["statement_id"] for each in found] == [0, 0, 0, 0, 1]
    assert [len(each["series"][0]["values"]) for each in found[:4]] == [20, 10, 20, 10]
    assert [each.get("partial", False) for each in found] == [True, True, True, False, False]
    assert [each["series"][0].get("partial", False) for each in found[:4]] == [True, False, True, False]


def test_parameters_are_values_and_never_text_of_the_statement(http: httpx.Client) -> None:
    statement = "SELECT used FROM mem WHERE host = $host LIMIT 1"
    assert len(values(http, statement, params='{"host": "a"}')) == 1
    assert values(http, statement, params=json.dumps({"host": "a' OR host = 'b"})) == []
    answer = http.get("/query", params={"db": "db", "q": statement})
    assert answer.status_code == 400 and answer.json()["error"].endswith("missing parameter: host at line 1, char 35")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, 'missing required parameter "q"'),
        (
            {"q": "SELECT"},
            "error parsing query: found EOF, expected identifier, string, number, bool at line 1, char 7",
        ),
        ({"q": "SHOW DATABASES", "epoch": "y"}, "expected epoch as one of"),
        ({"q": "SHOW DATABASES", "params": "["}, "error parsing query parameters"),
        ({"q": "DROP DATABASE db"}, "send a statement that changes something by POST"),
        ({"q": "SELECT " + "(" * 5000 + "1"}, "nested deeper than"),
        ({"q": ";".join(["SHOW DATABASES"] * 101)}, "more than 100 statements"),
        ({"q": "SELECT a FROM m WHERE b =~ /(/"}, "bad regular expression"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_the_reason(
    http: httpx.Client, parameters: dict[str, str], expected: str
) -> None:
    answer = http.get("/query", params=parameters)
    assert answer.status_code == 400 and expected in answer.json()["error"]


def test_a_form_of_too_many_fields_is_refused(http: httpx.Client) -> None:
    answer = http.post("/query", data={f"field{number}": "" for number in range(1001)})
    assert answer.status_code == 400 and "too many fields" in answer.json()["error"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT value FROM a.b.c./x/",
        "SELECT value FROM (SELECT value INTO x FROM cpu)",
        "SELECT value FROM (SELECT value FROM cpu",
        f"SELECT value FROM {'(SELECT value FROM ' * 17}cpu{')' * 17}",
        ";".join(["SELECT value FROM (SELECT value FROM cpu), (SELECT value FROM cpu)"] * 51),
        "DELETE FROM cpu",
        "DROP SERIES FROM cpu",
    ],
)
def test_what_is_not_supported_is_refused_at_its_place(http: httpx.Client, statement: str) -> None:
    answer = http.post("/query", params={"db": "db"}, data={"q": statement})
    assert answer.status_code == 400 and " at line 1, char " in answer.json()["error"]


def test_text_of_a_statement_never_becomes_sql(http: httpx.Client) -> None:
    for text in ("x' OR '1'='1", "'; DROP TABLE cpu; --", '"', "\\", "\n"):
        written = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        assert values(http, f"SELECT value FROM cpu WHERE host = '{written}'") == []
        assert values(http, f"SELECT value FROM (SELECT value, host FROM cpu) WHERE host = '{written}'") == []
    for name in ('a" FROM cpu --', "a'b", "ü"):
        assert values(http, f'SELECT "{name.replace(chr(34), chr(92) + chr(34))}" FROM cpu') == []


def test_an_unknown_database_is_reported(http: httpx.Client) -> None:
    found = http.get("/query", params={"db": "none", "q": "SELECT a FROM b"}).json()
    assert found == {"results": [{"statement_id": 0, "error": "database not found: none"}]}
    found = http.get("/query", params={"db": "db", "q": "SELECT a FROM (SELECT a FROM none..b)"}).json()
    assert found == {"results": [{"statement_id": 0, "error": "database not found: none"}]}
    answer = http.post("/write", params={"db": "none"}, content="m v=1")
    assert answer.status_code == 404 and answer.json() == {"error": 'database not found: "none"'}
    assert http.post("/write", content="m v=1").status_code == 400


@pytest.mark.parametrize(
    ("precision", "at"), [("", BEGIN_S * 10**9), ("u", BEGIN_S * 10**6), ("ms", BEGIN_S * 1000), ("s", BEGIN_S)]
)
def test_points_have_times_of_the_precision_that_is_said(http: httpx.Client, precision: str, at: int) -> None:
    assert write(http, f"times,p=p{precision} v=1 {at}", precision=precision).status_code == 204
    assert values(http, f"SELECT v FROM times WHERE p = 'p{precision}'") == [[BEGIN_S * 10**9, 1]]


def test_a_body_may_be_compressed(http: httpx.Client) -> None:
    answer = http.post(
        "/write", params={"db": "db"}, content=gzip.compress(b"zipped v=1 1"), headers={"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 204 and values(http, "SELECT v FROM zipped") == [[0, 1]]


def test_tags_and_fields_that_are_new_become_columns(http: httpx.Client, broker: Serving) -> None:
    assert write(http, 'grown,a=1 v=1 1000\ngrown,b=2 v=2,w=3i,note="some text" 2000').status_code == 204
    assert write(http, "grown,c=3 x=t 3000").status_code == 204
    schema = broker.broker.store.streams.get("db/grown").schema
    assert {field.name: str(field.type) for field in schema.columns} == {
        "time": "timestamp[us, tz=UTC]",
        "a": "string",
        "b": "string",
        "c": "string",
        "v": "double",
        "w": "int64",
        "x": "bool",
        "note": "string",
    }
    assert [row[:1] for row in values(http, "SHOW FIELD KEYS FROM grown")] == [["note"], ["v"], ["w"], ["x"]]
    assert values(http, "SHOW TAG KEYS FROM grown") == [["a"], ["b"], ["c"]]


def test_what_fits_is_written_and_what_does_not_is_named(http: httpx.Client) -> None:
    assert write(http, "typed v=1 1000").status_code == 204
    answer = write(http, 'typed v=2 2000\ntyped v="text" 3000\nno fields\ntyped v=4 4000')
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error.startswith("partial write: ") and error.endswith(" dropped=1")
    assert 'input field "v" on measurement "typed" is type string, already exists as type float' in error
    assert "unable to parse 'no fields'" in error
    assert [value for _, value in values(http, "SELECT v FROM typed")] == [1, 2, 4]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreUnavailable("the bucket does not answer"), 503),
        (DiskFull("no space is left"), 507),
        (AppendUncertain("no answer"), 500),
        (Closed("store"), 409),
        (Conflict("another change came first"), 409),
    ],
)
def test_what_another_attempt_may_cure_is_not_answered_as_the_fault_of_the_points(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    """Telegraf drops the points of a request that is answered with 400."""
    name = f"cured_after_{type(error).__name__}"
    assert write(http, f"{name} v=1 1000").status_code == 204

    def accept(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(SharedWriter, "accept", accept)
        answer = write(http, f"{name} v=2 2000")
    assert (answer.status_code, answer.json()["error"]) == (status, str(error))
    assert write(http, f"{name} v=2 2000").status_code == 204
    assert [value for _, value in values(http, f"SELECT v FROM {name}")] == [1, 2]


def test_points_become_rows_outside_of_the_event_loop(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    own = PointTable.batch

    def batch(table: PointTable) -> pa.RecordBatch:
        threads.append(threading.current_thread().name)
        return own(table)

    monkeypatch.setattr(PointTable, "batch", batch)
    assert write(http, "threads v=1").status_code == 204
    assert len(threads) == 1 and threads[0].startswith("anabranch-calls")


def test_points_go_into_a_stream_with_columns_of_its_own(http: httpx.Client, broker: Serving) -> None:
    broker.broker.store.streams.create("db/own", schema=_own(), key="sensor", time="at")
    assert write(http, "own,sensor=a value=1.5,n=3i 5000\nown,sensor=b value=2 6000").status_code == 204
    assert values(http, "SELECT * FROM own") == [[5000, 3, "a", 1.5], [6000, None, "b", 2]]
    answer = write(http, "own,at=x value=1 1\nown n=99999999999i 1")
    assert answer.status_code == 400 and "dropped=2" in answer.json()["error"]


def _own() -> object:
    import pyarrow as pa

    return pa.schema(
        [("sensor", pa.string()), ("at", pa.timestamp("us", "UTC")), ("value", pa.float64()), ("n", pa.int32())]
    )


def test_a_result_of_too_many_rows_is_refused_before_it_is_held(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INFLUXQL_ROWS_MAX", 100)
    windows = f"time >= {BEGIN_S}s AND time < {BEGIN_S + 80}s GROUP BY time(1s), host"
    for end in ("", " SLIMIT 1"):
        asked = {"db": "db", "q": f"SELECT mean(used) FROM mem WHERE {windows}{end}"}
        for more in ({}, {"chunked": "true"}):
            answer = http.get("/query", params={**asked, **more})
            assert "needs more than 100 rows" in answer.text
    for inner in ("SELECT used FROM mem", "SELECT used FROM mem WHERE host = 'a'), (SELECT value FROM cpu"):
        asked = {"db": "db", "q": f"SELECT count(used) FROM ({inner})"}
        monkeypatch.setattr(limits, "INFLUXQL_ROWS_MAX", 40)
        assert "needs more than 40 rows" in http.get("/query", params=asked).text
    monkeypatch.setattr(limits, "INFLUXQL_ROWS_MAX", 100)
    both = {"db": "db", "q": ";".join(["SELECT used FROM mem"] * 2)}
    assert "needs more than 100 rows" in http.get("/query", params=both).text


def test_an_error_in_a_header_has_no_control_characters(http: httpx.Client) -> None:
    answer = http.post("/write", params={"db": "größe\x05\r\n\x1e"}, content="m v=1")
    assert 400 <= answer.status_code < 500
    assert answer.headers["X-Influxdb-Error"].isprintable() and "gr??e" in answer.headers["X-Influxdb-Error"]


def test_a_subquery_may_have_numbers_beyond_the_integers_that_a_double_holds(http: httpx.Client) -> None:
    write(http, f"large v=3000000i,w=1.7e18 {BEGIN_S}", precision="s").raise_for_status()
    for inner, expected in (("pow(v, 3)", 2.7e19), ("floor(w)", 1.7e18), ("round(w)", 1.7e18)):
        assert values(http, f"SELECT max(x) FROM (SELECT {inner} AS x FROM large)")[0][1] == expected
    assert values(http, "SELECT pow(v, 60) FROM large")[0][1] is None
