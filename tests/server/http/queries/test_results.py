"""Results of deployed queries are read and pushed, as those of any stream, and waited for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.catalog.state.query_question import CommittedState, StateRow, StateWanted
from anabranch.deployments.questions import answer, open_questions
from anabranch.security.guard import Holding, OpenGuard, Principal
from anabranch.server.events.arrow_encoder import CUT
from anabranch.store import Store
from tests.hosted import Hosted
from tests.server.http.serving import Serving
from tests.waiting import until

RESULTS = "/v1/queries/means/results"
SSE = {"Accept": "text/event-stream"}


@pytest.fixture
def hosted(store: Store) -> Hosted:
    """The query `means`, which a host has just taken."""
    store.queries.deploy("means", "CREATE STREAM out.means AS …")
    return Hosted(store, "means")


@pytest.fixture
def running(hosted: Hosted) -> Hosted:
    """It runs, and has ten results."""
    hosted.prepare("out/means")
    hosted.create("out/means")
    hosted.report("running")
    hosted.publish("out/means", range(10))
    return hosted


def events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, object]]]:
    """Server-sent events: the id, or the name of an event that has none, and the data."""
    ident = ""
    for line in answer.iter_lines():
        if line.startswith(("id: ", "event: ")):
            ident = line.partition(": ")[2]
        elif line.startswith("data: "):
            yield ident, json.loads(line.removeprefix("data: "))


def test_the_committed_state_is_that_which_a_host_reads(http: httpx.Client, store: Store, running: Hosted) -> None:
    row = StateRow("stateStoreSave", "state", {"device": "a"}, {"count": 2, "sum": 1.5})
    with ThreadPoolExecutor(1) as threads:
        path, asked = "/v1/queries/means/state/committed", {"key": "a", "batch": "0", "limit": "5"}
        answering = threads.submit(http.get, path, params=asked)
        until(lambda: open_questions(store.catalog, store.runtime.clock.now()) != [])
        (question,) = open_questions(store.catalog, store.runtime.clock.now())
        assert (question.kind, question.name) == ("state", "means")
        assert question.wanted == StateWanted("out/means", "a", 0, 5)
        answer(store.catalog, question, lambda: {"state": CommittedState("out/means", 0, (row,), more=False)})
        found = answering.result(60)
    assert found.json() == {"target": "out/means", "batch": 0, "rows": [row.to_json()], "more": False}
    assert "expected batch as a whole number, got '-1'" in http.get(path, params={"batch": "-1"}).json()["detail"]
    assert "from 1 to 1,000" in http.get(path, params={"limit": "1001"}).json()["detail"]


def numbers(rows: list[dict[str, object]]) -> list[object]:
    return sorted((row["n"] for row in rows), key=int)  # type: ignore[arg-type]


def test_results_of_the_past_run_into_the_future_and_resume_by_id(served: Serving, running: Hosted) -> None:
    url = f"{served.url}{RESULTS}"
    seen: list[dict[str, object]] = []
    last: dict[str, str] = {}
    for begin in range(10, 30, 5):
        with httpx.stream("GET", url, headers={**SSE, **last}, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            found = events(answer)
            running.publish("out/means", range(begin, begin + 5))
            while len(seen) < begin + 3:  # the last ones of each round are left for the next
                ident, row = next(found)
                last = {"Last-Event-ID": ident}
                seen.append(row)
    with httpx.stream("GET", url, params={"from": last["Last-Event-ID"]}, headers=SSE, timeout=60) as answer:
        found = events(answer)
        while len(seen) < 30:
            seen.append(next(found)[1])
    assert numbers(seen) == list(range(30))


def test_events_and_ids_are_those_of_the_stream(served: Serving, running: Hosted) -> None:
    found = []
    for path in (RESULTS, f"{RESULTS}/1", f"{RESULTS}/means", f"{RESULTS}/out/means", "/v1/streams/out/means/events"):
        with httpx.stream("GET", f"{served.url}{path}", headers=SSE, timeout=60) as answer:
            several = events(answer)
            found.append([next(several) for _ in range(10)])
    assert all(each == found[0] for each in found)


def test_results_are_read_in_each_form(http: httpx.Client, running: Hosted) -> None:
    page = http.get(RESULTS, params={"limit": 4})
    rows = list(page.json()["events"])
    while (following := page.json()["next"]) is not None:
        page = http.get(following)
        rows += page.json()["events"]
    assert numbers(rows) == list(range(10))
    lines = http.get(RESULTS, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert numbers([json.loads(line) for line in lines]) == list(range(10))
    arrow = http.get(RESULTS, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert numbers(pa.ipc.open_stream(arrow.content).read_all().to_pylist()) == list(range(10))


def test_arrow_is_followed_and_resumed_by_the_cut_of_a_batch(served: Serving, running: Hosted) -> None:
    url, cut = f"{served.url}{RESULTS}", "head"
    rows: list[dict[str, object]] = []
    for stop in (10, 20, 30):
        with httpx.stream("GET", url, params={"follow": "", "format": "arrow", "from": cut}, timeout=60) as answer:
            reader = pa.ipc.open_stream(_Body(answer))
            assert reader.schema.names == ["device", "at", "n"]
            while len(rows) < stop:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
                rows += batch.to_pylist()
                cut = metadata[CUT.encode()].decode()
        running.publish("out/means", range(stop, stop + 10))
    assert numbers(rows) == list(range(30))


class _Body:
    """The body of an answer as a file."""

    closed = False

    def __init__(self, answer: httpx.Response) -> None:
        self._parts, self._left = answer.iter_bytes(), b""

    def read(self, size: int) -> bytes:
        while len(self._left) < size and (part := next(self._parts, None)) is not None:
            self._left += part
        found, self._left = self._left[:size], self._left[size:]
        return found


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each follower; those who wait look every moment."""
    monkeypatch.setattr(limits, "FOLLOW_IDLE_S", 0.05)
    monkeypatch.setattr(limits, "FOLLOW_AWAIT_S", 0.02)
    found: list[str] = []

    def hold(self: OpenGuard, principal: Principal, what: str, amount: int = 1) -> Holding:
        found.append(what)
        return Holding()

    monkeypatch.setattr(OpenGuard, "hold", hold)
    return found


def test_the_state_of_a_query_is_its_last_result_with_a_key(http: httpx.Client, store: Store, running: Hosted) -> None:
    for last in (range(3), range(10, 13)):
        running.publish("out/means", last)
        expected = {event.key: event for event in store.reader("out/means")}
        assert len(expected) == 3
        for device, event in expected.items():
            for path in ("/v1/queries/means/state", "/v1/streams/out/means/latest"):
                found = http.get(path, params={"key": device})
                assert found.status_code == 200 and found.json()["n"] == event.body["n"]
                assert found.headers["anabranch-pointer"] == str(event.pointer)
    assert http.get("/v1/queries/means/state", params={"key": "d0", "result": "out/means"}).json()["n"] in range(13)
    for params, status, says in (
        ({"key": "never"}, 404, "has no event with key 'never'"),
        ({}, 400, "expected the routing key"),
        ({"key": "d0", "result": "2"}, 400, "has no result '2'"),
    ):
        refused = http.get("/v1/queries/means/state", params=params)
        assert (refused.status_code, says in refused.json()["detail"]) == (status, True), refused.text
    store.queries.deploy("new", "CREATE STREAM …")
    assert http.get("/v1/queries/new/state", params={"key": "a"}).status_code == 409


@pytest.mark.parametrize("form", ["sse", "ndjson", "arrow"])
def test_a_follower_waits_for_the_results_of_a_query_that_starts(
    served: Serving, hosted: Hosted, followers: list[str], form: str
) -> None:
    refused = httpx.get(f"{served.url}{RESULTS}", timeout=60).json()
    assert (refused["status"], refused["code"]) == (409, "no_results_yet")
    assert refused["detail"].endswith("it is waiting; follow its results to wait for them")

    def follow() -> list[dict[str, object]]:
        params = {"follow": "", "format": form, "from": "tail"}  # what comes after the request: all
        with httpx.stream("GET", f"{served.url}{RESULTS}", params=params, timeout=60) as answer:
            if form == "arrow":
                reader = pa.ipc.open_stream(_Body(answer))
                rows: list[dict[str, object]] = []
                while len(rows) < 3:
                    rows += reader.read_next_batch().to_pylist()
                return rows
            if form == "sse":
                found = events(answer)
                return [next(found)[1] for _ in range(3)]
            lines = answer.iter_lines()
            return [json.loads(next(lines)) for _ in range(3)]

    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(follow)
        until(lambda: followers == ["followers"])
        hosted.report("starting")
        hosted.prepare("out/means")
        hosted.create("out/means")
        hosted.publish("out/means", range(3))
        assert numbers(following.result(60)) == [0, 1, 2]


def test_who_waits_gets_signs_of_life_and_one_problem_once_the_query_fails(
    served: Serving, hosted: Hosted, followers: list[str]
) -> None:
    hosted.report("starting")
    with httpx.stream("GET", f"{served.url}{RESULTS}", headers=SSE, timeout=60) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert [next(lines), next(lines)] == [": keep-alive", ""]
        hosted.report("failed", "line 3: no such column")
        rest = [line for line in lines if line and line != ": keep-alive"]
    assert rest[0] == "event: problem" and len(rest) == 2
    problem = json.loads(rest[1].removeprefix("data: "))
    assert problem["code"] == "no_results_yet"
    assert problem["detail"] == "query 'means' has no results yet: it has failed: line 3: no such column"
    for form in ("arrow", "json"):
        refused = httpx.get(
            f"{served.url}{RESULTS}?follow&format={form}".replace("?follow&format=json", ""), timeout=60
        )
        assert refused.status_code == 409 and refused.json()["detail"] == problem["detail"]


def test_who_waits_in_arrow_is_sent_elsewhere_once_the_broker_drains(
    served: Serving, hosted: Hosted, followers: list[str]
) -> None:
    hosted.report("starting")
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(
            httpx.get, f"{served.url}{RESULTS}", params={"follow": "", "format": "arrow"}, timeout=60
        )
        until(lambda: followers == ["followers"])
        served.broker.drain.start()
        refused = following.result(60)
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")


def test_what_can_not_be_meant_is_refused(http: httpx.Client, store: Store, running: Hosted) -> None:
    assert http.get("/v1/queries/none/results").json()["code"] == "query_not_found"
    assert http.get(f"{RESULTS}/nothing").json()["detail"] == "query 'means' has no result 'nothing'; it has: out/means"
    running.prepare("out/means", "out/other", "iot/other")
    assert "has several results; name one of: out/means, out/other, iot/other" in http.get(RESULTS).json()["detail"]
    assert http.get(f"{RESULTS}/means").status_code == 200
    assert "has no result 'other'" in http.get(f"{RESULTS}/other").json()["detail"]
    assert http.get(f"{RESULTS}/3").json()["code"] == "no_results_yet"
    store.queries.stop("means")
    running.report("stopped")
    stopped = http.get(f"{RESULTS}/3", headers=SSE)
    assert "it is stopped; start it with: anabranch queries start means" in stopped.text
    assert http.get(f"{RESULTS}/1", headers=SSE, params={"follow": "false"}).status_code == 406
