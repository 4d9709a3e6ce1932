"""Streams and results of queries, followed over WebSockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from anabranch.store import Store
from tests.hosted import Hosted
from tests.server.http.serving import Serving, serving

SENSORS = "/v1/streams/iot/sensors/events"
RESULTS = "/v1/queries/means/results"


@contextmanager
def socket(served: Serving, path: str, **headers: str) -> Iterator[ClientConnection]:
    url = f"{served.url.replace('http', 'ws', 1)}{path}"
    with connect(url, additional_headers=headers, open_timeout=60, close_timeout=60) as opened:
        yield opened


def refused(served: Serving, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as raised, socket(served, path, **headers):
        pass
    answer = raised.value.response
    return answer.status_code, json.loads(answer.body or b"{}")


def event(number: int) -> dict[str, object]:
    return {"sensor": f"s{number % 4}", "at": "2026-01-01T00:00:00.000001Z", "count": number}


def test_a_socket_has_the_ids_and_data_of_server_sent_events(served: Serving, http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(8)])
    with http.stream("GET", SENSORS, headers={"Accept": "text/event-stream"}) as answer:
        lines = list(islice((line for line in answer.iter_lines() if line), 16))
    with socket(served, SENSORS) as opened:
        messages = [json.loads(opened.recv(60)) for _ in range(8)]
    assert [each["id"] for each in messages] == [line.removeprefix("id: ") for line in lines[::2]]
    assert [each["data"] for each in messages] == [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]


def test_a_socket_goes_on_from_a_cut_into_the_future(served: Serving, http: httpx.Client) -> None:
    http.post(SENSORS, json=[event(n) for n in range(8)])
    seen: list[int] = []
    last = "head"
    for stop in (3, 8, 12):
        with socket(served, f"{SENSORS}?columns=count&from={last}") as opened:
            while len(seen) < stop:
                message = json.loads(opened.recv(60))
                last = message["id"]
                seen.append(message["data"]["count"])
                if len(seen) == 8:
                    http.post(SENSORS, json=[event(n) for n in range(8, 12)])
    assert sorted(seen) == list(range(12))


def test_results_of_a_query_come_over_a_socket(served: Serving, store: Store) -> None:
    store.queries.deploy("means", "…")
    assert refused(served, "/v1/queries/none/results")[1]["code"] == "query_not_found"
    assert refused(served, f"{RESULTS}?format=arrow")[1]["code"] == "invalid_argument"
    with socket(served, RESULTS) as opened:
        hosted = Hosted(store, "means")
        hosted.prepare("out/means")
        hosted.create("out/means")
        hosted.publish("out/means", range(5))
        found = [json.loads(opened.recv(60))["data"]["n"] for _ in range(5)]
        hosted.publish("out/means", range(5, 7))
        found += [json.loads(opened.recv(60))["data"]["n"] for _ in range(2)]
    assert sorted(found) == list(range(7))
    hosted.prepare("out/other")
    hosted.report("failed", "line 1: no")
    assert refused(served, RESULTS) == (409, refused(served, RESULTS)[1])
    assert refused(served, RESULTS)[1]["detail"] == "query 'means' has no results yet: it has failed: line 1: no"


def test_the_last_message_says_why_it_ends(served: Serving, http: httpx.Client, store: Store) -> None:
    http.post(SENSORS, json=event(1))
    with socket(served, SENSORS) as opened:
        cut = json.loads(opened.recv(60))["id"]
        store.streams.seal("iot/sensors")
        assert json.loads(opened.recv(60)) == {"event": "sealed", "data": {}}
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1000
    with socket(served, "/v1/streams/iot/raw/events") as opened:
        served.broker.drain.start()
        last = json.loads(opened.recv(60))
        assert (last["event"], last["data"]["code"]) == ("problem", "draining")
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
    assert cut
    assert refused(served, SENSORS)[0] == 503


def test_pages_of_other_origins_are_refused(served: Serving, store: Store) -> None:
    assert refused(served, SENSORS, Origin="https://evil.example")[1]["code"] == "origin_not_allowed"
    with socket(served, SENSORS, Origin=served.url):
        pass
    with serving(store, origins=["https://app.example"]) as open_to_one:
        assert refused(open_to_one, SENSORS, Origin="https://evil.example")[0] == 403
        with socket(open_to_one, SENSORS, Origin="https://app.example"):
            pass
