"""Appending, reading and following over HTTP, by a real server and real sockets."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from urllib.parse import parse_qs

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.cut import TAIL
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.table import ENDPOINTS
from anabranch.store import Store
from tests.server.http.serving import COLUMNS, Serving

SENSORS = "/v1/streams/iot/sensors/events"
RAW = "/v1/streams/iot/raw/events"


def event(number: int, **more: object) -> dict[str, object]:
    return {"sensor": f"s{number % 4}", "at": "2026-01-01T00:00:00.000001Z", "count": number, **more}


def counts(rows: list[dict[str, object]]) -> list[object]:
    return sorted((row["count"] for row in rows), key=int)  # type: ignore[arg-type]


def test_an_event_is_durable_when_it_is_answered(http: httpx.Client, store: Store) -> None:
    answer = http.post(SENSORS, json=event(1, value=2.5))
    assert answer.status_code == 200, answer.text
    (pointer,) = answer.json()["pointers"]
    assert store.fetch(pointer).body["value"] == 2.5
    assert answer.json()["ranges"][0]["stop"] - answer.json()["ranges"][0]["start"] == 1


def test_many_single_events_at_once_are_all_appended_once(http: httpx.Client, store: Store) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda n: http.post(SENSORS, json=event(n)), range(400)))
    assert {answer.status_code for answer in answers} == {200}
    pointers = [answer.json()["pointers"][0] for answer in answers]
    assert len(set(pointers)) == 400
    assert [store.fetch(pointer).body["count"] for pointer in pointers] == list(range(400))
    with store.reader("iot/sensors") as reader:
        assert sorted(each.body["count"] for each in reader) == list(range(400))


@pytest.mark.parametrize("kind", ["array", "ndjson", "gzip", "arrow"])
def test_many_events_in_one_request(http: httpx.Client, store: Store, kind: str) -> None:
    rows = [event(n) for n in range(50)]
    lines = "\n".join(map(json.dumps, rows)).encode()
    if kind == "array":
        answer = http.post(SENSORS, json=rows)
    elif kind == "ndjson":
        answer = http.post(SENSORS, content=lines, headers={"Content-Type": "application/x-ndjson"})
    elif kind == "gzip":
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        answer = http.post(SENSORS, content=gzip.compress(lines), headers=headers)
    else:
        table = pa.table({"sensor": [str(row["sensor"]) for row in rows], "count": [row["count"] for row in rows]})
        sink = BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        answer = http.post(
            SENSORS, content=sink.getvalue(), headers={"Content-Type": "application/vnd.apache.arrow.stream"}
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["events"] == 50
    assert [store.fetch(pointer).body["count"] for pointer in answer.json()["pointers"]] == list(range(50))
    assert counts(http.get(SENSORS).json()["events"]) == list(range(50))


def test_bytes_go_to_a_raw_stream_as_they_are(http: httpx.Client, store: Store) -> None:
    headers = {
        "Content-Type": "application/octet-stream",
        "Anabranch-Key": "k%C3%A4",
        "Anabranch-Time": "1700000000000000",
    }
    answer = http.post(RAW, content=b"\x00\xff", headers=headers)
    (pointer,) = answer.json()["pointers"]
    found = store.fetch(pointer)
    assert (found.body, found.key, found.time_us) == (b"\x00\xff", "kä", 1700000000000000)
    (row,) = http.get(RAW).json()["events"]
    assert row["payload_base64"] == "AP8=" and row["key"] == "kä"
    assert http.post(RAW, json=row).status_code == 200  # what was read can be sent as it is
    assert [each["payload_base64"] for each in http.get(RAW).json()["events"]] == ["AP8=", "AP8="]


def test_a_key_that_is_not_utf8_is_refused(http: httpx.Client) -> None:
    headers = {"Content-Type": "application/octet-stream", "Anabranch-Key": "%FF"}
    answer = http.post(RAW, content=b"x", headers=headers)
    assert answer.status_code == 400 and "Anabranch-Key as percent-encoded UTF-8" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"nope": 1}', "schema_mismatch"),
        ('{"count": "seven"}', "schema_mismatch"),
        ('{"count": 1.5}', "schema_mismatch"),
        ('{"at": "yesterday"}', "schema_mismatch"),
        ('{"count": 99999999999999999999}', "schema_mismatch"),
        ("[1]", "schema_mismatch"),
        ("[]", "invalid_argument"),
        ("{", "invalid_argument"),
        ("", "invalid_argument"),
        ("[" * 100_000, "invalid_argument"),
        ("\ud800".encode("utf-8", "surrogatepass"), "invalid_argument"),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_a_wrong_event_is_one_clear_problem_and_appends_nothing(
    http: httpx.Client, body: str | bytes, code: str, warm: bool
) -> None:
    if warm:  # so that the next one goes the short way
        http.post(SENSORS, json=event(0))
    answer = http.post(SENSORS, content=body, headers={"Content-Type": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code and problem["status"] == answer.status_code and problem["detail"]
    assert len(http.get(SENSORS).json()["events"]) == warm


def test_one_wrong_event_of_many_appends_none_and_is_named(http: httpx.Client) -> None:
    answer = http.post(SENSORS, json=[event(0), event(1, count="x")])
    assert answer.status_code == 422 and "event 1" in answer.json()["detail"]
    assert http.get(SENSORS).json()["events"] == []


def test_a_body_that_unpacks_to_more_than_the_limit_is_refused(http: httpx.Client) -> None:
    bomb = gzip.compress(bytes(limits.HTTP_BODY_BYTES_MAX + 1))
    answer = http.post(RAW, content=bomb, headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    cut_off = gzip.compress(b"whole")[:-3]
    answer = http.post(RAW, content=cut_off, headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    assert http.get(RAW).json()["events"] == []


def test_an_unknown_stream_is_a_problem_with_its_code(http: httpx.Client) -> None:
    answer = http.post("/v1/streams/iot/nothing/events", json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "stream_not_found")
    assert http.get("/v1/nothing").json()["code"] == "no_such_path"
    assert http.delete(SENSORS).json()["code"] == "method_not_allowed"


def test_a_column_added_meanwhile_is_found(http: httpx.Client, store: Store) -> None:
    http.post(SENSORS, json=event(0))
    store.streams.evolve("iot/sensors", pa.schema([*COLUMNS, pa.field("more", pa.string())]))
    assert http.post(SENSORS, json=event(1, more="new")).status_code == 200


def test_a_stream_deleted_and_made_again_is_found(http: httpx.Client, store: Store) -> None:
    http.post(RAW, content=b"old")
    store.streams.delete("iot/raw")
    store.streams.create("iot/raw")
    until_appended(http, b"new")
    with store.reader("iot/raw") as reader:
        assert [each.body for each in reader] == [b"new"]


def until_appended(http: httpx.Client, body: bytes) -> None:
    """The name may be remembered for a moment."""
    for _ in range(3):
        answer = http.post(RAW, content=body)
        if answer.status_code == 200:
            return
    raise AssertionError(answer.text)


def test_pages_follow_one_another_to_the_end(http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(25)])
    page = http.get(SENSORS, params={"limit": 10, "columns": "count"})
    found, pages = list(page.json()["events"]), 1
    while (following := page.json()["next"]) is not None:
        assert page.links["next"]["url"] == following
        page = http.get(following)
        found += page.json()["events"]
        pages += 1
    assert counts(found) == list(range(25)) and pages == 3
    assert all(row.keys() == {"count"} for row in found)


def test_times_may_be_given_by_how_long_ago_they_are(http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(25)])

    def asked(**places: str) -> list[object]:
        return counts(http.get(SENSORS, params={"limit": 100, **places}).json()["events"])

    everything = list(range(25))
    assert asked(**{"from": "-1h"}) == asked(to="-0s") == everything
    assert asked(to="-1h") == []
    assert asked(between="-5200w..-0s") == everything
    assert asked(between="-0s..-0s") == []
    cut = http.get(f"{SENSORS.removesuffix('events')}cut", params={"at": "-1h"}).json()["cut"]
    assert cut == http.get(f"{SENSORS.removesuffix('events')}cut", params={"at": "head"}).json()["cut"]
    for ago in ("-" + "9" * 18 + "w", "-" + "9" * 5_000 + "d"):
        assert http.get(SENSORS, params={"from": ago}).status_code == 400
    assert "-1y" in http.get(SENSORS, params={"from": "-1y"}).json()["detail"]


def test_the_pages_of_a_time_ago_have_one_end(http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(25)])
    page = http.get(SENSORS, params={"limit": 10, "to": "-0s", "between": "-5200w..-0s"})
    found = list(page.json()["events"])
    http.post(SENSORS, json=[event(n) for n in range(25, 30)])
    while (following := page.json()["next"]) is not None:
        assert "-" not in parse_qs(following.partition("?")[2])["to"][0]
        page = http.get(following)
        found += page.json()["events"]
    assert counts(found) == list(range(25))


@pytest.mark.parametrize("limit", [None, 20])
@pytest.mark.parametrize("form", ["ndjson", "arrow", "parquet"])
def test_every_form_holds_the_same_events(http: httpx.Client, form: str, limit: int | None) -> None:
    http.post(SENSORS, json=[event(n, data="x") for n in range(20)])
    params = {"format": form, "meta": ""} | ({} if limit is None else {"limit": str(limit)})
    answer = http.get(SENSORS, params=params)
    assert answer.status_code == 200, answer.text
    if form == "ndjson":
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert all(row.keys() >= {"_pointer", "_appended", "_cut"} for row in rows)
    else:
        table = (
            pq.read_table(BytesIO(answer.content))
            if form == "parquet"
            else pa.ipc.open_stream(answer.content).read_all()
        )
        assert table.column_names[-3:] == ["_segment", "_offset", "_appended"]
        rows = table.to_pylist()
    assert counts(rows) == list(range(20))


def test_the_cut_of_an_event_is_where_a_read_goes_on(http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(12)])
    rows = http.get(SENSORS, params={"meta": ""}).json()["events"]
    for done, row in enumerate(rows, start=1):
        rest = http.get(SENSORS, params={"from": row["_cut"]}).json()["events"]
        assert counts(rest + rows[:done]) == list(range(12))
        assert len(rest) == 12 - done


def test_a_range_of_times_and_by_pointer(http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n, sensor="one", at=f"2026-01-01T00:00:{n:02d}Z") for n in range(10)])
    params = {"by": "event", "from": "2026-01-01T00:00:03Z", "to": "2026-01-01T00:00:06Z"}
    assert counts(http.get(SENSORS, params=params).json()["events"]) == [3, 4, 5]
    between = {"between": "2026-01-01T00:00:03Z..2026-01-01T00:00:05Z"}
    rows = http.get(SENSORS, params={**between, "meta": ""}).json()["events"]
    assert counts(rows) == [3, 4]


@pytest.mark.parametrize(
    "params",
    [{"limit": "0"}, {"limit": "x"}, {"from": "nowhere"}, {"by": "luck"}, {"format": "xml"}, {"columns": "nope"}],
)
def test_a_wrong_parameter_is_refused(http: httpx.Client, params: dict[str, str]) -> None:
    answer = http.get(SENSORS, params=params)
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_follower_gets_history_and_then_what_comes(served: Serving, http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(5)])
    with httpx.stream("GET", f"{served.url}{SENSORS}?follow", timeout=60) as answer:
        lines = answer.iter_lines()
        assert counts([json.loads(next(lines)) for _ in range(5)]) == list(range(5))
        for number in range(5, 9):
            http.post(SENSORS, json=event(number))
            assert json.loads(next(lines))["count"] == number


def test_a_follower_of_server_sent_events_resumes_by_its_last_id(served: Serving, http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(8)])
    seen: list[int] = []
    last: dict[str, str] = {}
    for _ in range(4):
        headers = {"Accept": "text/event-stream", **last}
        with httpx.stream("GET", f"{served.url}{SENSORS}?follow", headers=headers, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in answer.iter_lines() if line)
            for _ in range(2):
                ident, data = next(lines), next(lines)
                last = {"Last-Event-ID": ident.removeprefix("id: ")}
                seen.append(json.loads(data.removeprefix("data: "))["count"])
    assert sorted(seen) == list(range(8))


def test_followers_share_one_reader_and_none_misses_or_doubles(served: Serving, http: httpx.Client) -> None:
    def take(start: str) -> list[int]:
        with httpx.stream("GET", f"{served.url}{SENSORS}?follow&from={start}&columns=count", timeout=60) as answer:
            found = []
            for line in answer.iter_lines():
                found.append(json.loads(line)["count"])
                if found[-1] == -1:
                    return found
        raise AssertionError("the follower ended")

    http.post(SENSORS, json=[event(n, sensor="one") for n in range(50)])
    with ThreadPoolExecutor(12) as threads:
        followers = [threads.submit(take, "head") for _ in range(12)]
        for number in range(50, 120):
            http.post(SENSORS, json=event(number, sensor="one"))
        http.post(SENSORS, json=event(-1, sensor="one"))
        for follower in followers:
            assert follower.result(60) == [*range(120), -1]


def test_a_follower_of_a_sealed_stream_ends(served: Serving, http: httpx.Client, store: Store) -> None:
    http.post(SENSORS, json=[event(n) for n in range(3)])
    with httpx.stream("GET", f"{served.url}{SENSORS}?follow", timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(3):
            next(lines)
        store.streams.seal("iot/sensors")
        assert list(lines) == []
    answer = http.post(SENSORS, json=event(1))
    assert (answer.status_code, answer.json()["code"]) == (409, "stream_sealed")


def test_a_follower_goes_on_across_a_split(served: Serving, http: httpx.Client, store: Store) -> None:
    with httpx.stream("GET", f"{served.url}{SENSORS}?follow&meta", timeout=60) as answer:
        lines = answer.iter_lines()
        rows = []
        for round_ in range(3):
            http.post(SENSORS, json=[event(round_ * 10 + n) for n in range(10)])
            rows += [json.loads(next(lines)) for _ in range(10)]
            store.streams.scale("iot/sensors", 3 + round_)
    assert counts(rows) == list(range(30))
    for done, row in enumerate(rows, start=1):
        rest = http.get(SENSORS, params={"from": row["_cut"]}).json()["events"]
        assert counts(rest + rows[:done]) == list(range(30))


def test_a_draining_broker_lets_followers_know_where_to_resume(
    served: Serving, http: httpx.Client, store: Store
) -> None:
    http.post(SENSORS, json=[event(n) for n in range(3)])
    with httpx.stream("GET", f"{served.url}{SENSORS}?follow", timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(3):
            next(lines)
        served.broker.drain.start()
        problem = json.loads(next(lines))["_problem"]
    assert problem["code"] == "draining"
    with store.reader("iot/sensors", start=ab.StreamCut.parse(problem["cut"]), end=TAIL) as reader:
        assert list(reader) == []
    assert http.get(SENSORS).status_code == 503


def test_a_follower_gets_events_at_the_rate_it_asks_for(served: Serving, http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n, sensor="one") for n in range(40)])
    slow = f"{served.url}{SENSORS}?follow&meta&events_per_s=0.001"
    with httpx.stream("GET", slow, timeout=60) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines))
        # Another rate: from the cut, which is how a rate is changed.
        fast = f"{served.url}{SENSORS}?follow&events_per_s=1e6&bytes_per_s=1GB&from={first['_cut']}"
        with httpx.stream("GET", fast, timeout=60) as other:
            rest = other.iter_lines()
            assert [json.loads(next(rest))["count"] for _ in range(39)] == list(range(1, 40))
            served.broker.drain.start()
        problem = json.loads(next(lines))["_problem"]
    assert first["count"] == 0
    assert (problem["code"], problem["cut"]) == ("draining", first["_cut"])


def test_a_read_of_everything_takes_a_rate_and_a_page_does_not(http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n, sensor="one") for n in range(40)])
    answer = http.get(SENSORS, params={"format": "ndjson", "events_per_s": "1000"})
    assert [json.loads(line)["count"] for line in answer.iter_lines()] == list(range(40))
    for params in ({"events_per_s": "10"}, {"format": "ndjson", "limit": "5", "bytes_per_s": "1MB"}):
        assert "a page can't have a rate" in http.get(SENSORS, params=params).json()["detail"]
    for params in ({"events_per_s": "fast"}, {"events_per_s": "-1"}, {"bytes_per_s": "0"}, {"events_per_s": "nan"}):
        refused = http.get(SENSORS, params={"format": "ndjson", **params})
        assert refused.status_code == 400, params


def test_an_event_that_breaks_a_check_is_refused_with_its_values(http: httpx.Client, store: Store) -> None:
    asked = {"name": "iot/checked", "schema": "sensor:string, count:int64", "checks": {"positive": "count > 0"}}
    made = http.post("/v1/streams", json=asked)
    assert made.json()["checks"] == {"positive": "count > 0"}, made.text
    events = "/v1/streams/iot/checked/events"
    assert http.post(events, json={"sensor": "a", "count": 1}).status_code == 200
    for body in ({"sensor": "a", "count": -1}, [{"sensor": "a", "count": 2}, {"sensor": "a", "count": -1}]):
        answer = http.post(events, json=body)
        assert answer.status_code == 422, answer.text
        assert "breaks the check 'positive' (count > 0): count = -1" in answer.text
    with store.reader("iot/checked") as reader:
        assert [event.body["count"] for event in reader] == [1]


@pytest.mark.parametrize(
    "endpoint", [each for each in ENDPOINTS if each.path.startswith("/v1/")], ids=lambda each: each.name
)
def test_no_endpoint_takes_a_parameter_that_it_has_not(endpoint: Endpoint) -> None:
    known = [each["name"] for each in endpoint.parameters if each["in"] == "query"]
    endpoint.check_query(known)
    with pytest.raises(InvalidArgument, match=f"has no parameter 'where': it takes {', '.join(known) or 'none'}$"):
        endpoint.check_query([*known, "where"])


def test_a_parameter_that_is_unknown_is_refused(http: httpx.Client) -> None:
    http.post(SENSORS, json=event(1))
    answer = http.get(SENSORS, params={"where": "count > 5", "limit": 1})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(
        "GET /v1/streams/{scope}/{name}/events has no parameter 'where': it takes from, to, by, limit, columns"
    )
