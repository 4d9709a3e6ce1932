"""Producers over HTTP: each numbered request takes effect once."""

from __future__ import annotations

import httpx
import pytest

from anabranch.store import Store
from tests.server.http.serving import serving

SENSORS = "/v1/streams/iot/sensors/events"
RAW = "/v1/streams/iot/raw/events"


def headers(sequence: int, epoch: int = 0) -> dict[str, str]:
    return {"Producer-Id": "gauge", "Producer-Epoch": str(epoch), "Producer-Seq": str(sequence)}


def counts(store: Store) -> list[int]:
    with store.reader("iot/sensors") as reader:
        return sorted(each.body["count"] for each in reader)


def test_a_repeat_has_its_first_answer_and_appends_nothing(http: httpx.Client, store: Store) -> None:
    events = [{"sensor": f"s{n}", "count": n} for n in range(5)]
    first = http.post(SENSORS, json=events, headers=headers(0))
    assert first.status_code == 200, first.text
    assert (first.json()["events"], first.json()["duplicate"]) == (5, False)
    again = http.post(SENSORS, json=events, headers=headers(0))
    assert again.json() == {**first.json(), "duplicate": True}
    with serving(store) as other, httpx.Client(base_url=other.url, timeout=60) as elsewhere:  # another broker
        assert elsewhere.post(SENSORS, json=events, headers=headers(0)).json() == again.json()
        assert elsewhere.post(SENSORS, json={"count": 5}, headers=headers(1)).json()["events"] == 1
    assert http.post(SENSORS, json={"count": 5}, headers=headers(1)).json()["duplicate"]
    assert counts(store) == list(range(6))


def test_a_gap_and_an_old_epoch_are_refused(http: httpx.Client, store: Store) -> None:
    http.post(SENSORS, json={"count": 0}, headers=headers(0))
    gap = http.post(SENSORS, json={"count": 9}, headers=headers(2))
    assert (gap.status_code, gap.json()["code"], gap.json()["fields"]["expected"]) == (409, "out_of_sequence", 1)
    assert http.post(SENSORS, json={"count": 1}, headers=headers(0, epoch=1)).status_code == 200
    assert http.post(SENSORS, json={"count": 9}, headers=headers(1)).json()["code"] == "fenced"
    assert http.post(SENSORS, json={"count": 2}, headers=headers(1, epoch=1)).status_code == 200
    assert counts(store) == [0, 1, 2]


def test_a_refused_event_leaves_its_number_to_the_next(http: httpx.Client, store: Store) -> None:
    assert http.post(SENSORS, json={"count": "x"}, headers=headers(0)).status_code == 422
    assert http.post(SENSORS, json={"count": 0}, headers=headers(0)).status_code == 200
    assert counts(store) == [0]


def test_bytes_of_a_raw_stream(http: httpx.Client, store: Store) -> None:
    for _ in range(2):
        answer = http.post(RAW, content=b"\x00x", headers={**headers(0), "Anabranch-Key": "k"})
        assert answer.status_code == 200, answer.text
    with store.reader("iot/raw") as reader:
        assert [(each.key, each.body) for each in reader] == [("k", b"\x00x")]


@pytest.mark.parametrize("missing", ["Producer-Id", "Producer-Epoch", "Producer-Seq"])
def test_the_headers_come_together(http: httpx.Client, missing: str) -> None:
    given = headers(0)
    del given[missing]
    assert http.post(SENSORS, json={"count": 1}, headers=given).json()["code"] == "invalid_argument"
