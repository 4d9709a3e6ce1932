"""Uploads that were begun and not finished are removed after a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate_to_datetime

import httpx
import pytest

from anabranch.catalog.state.ephemeral import EPHEMERAL, Holders
from anabranch.model.ids import Micros
from anabranch.server.config import load
from anabranch.store import Store

URL = "/v1/streams/iot/firmware/bytes"
DAY_S = 86_400
Age = Callable[[float], None]


@pytest.fixture
def age(store: Store) -> Age:
    """Makes the upload older by so many seconds, as the catalog has it."""

    def change(seconds: float) -> None:
        ident = store.streams.get("iot/firmware").id
        with store.catalog.writing(ident) as txn:
            held = txn.state(EPHEMERAL, ident)
            assert held is not None
            (holder,) = held.holders
            until = Micros(holder.until - round(seconds * 1e6))
            txn.put_state(EPHEMERAL, ident, Holders((replace(holder, until=until),)))

    return change


def begin(http: httpx.Client) -> None:
    assert http.post(URL, headers={"Upload-Length": "10"}).status_code == 201


def append(http: httpx.Client, offset: int, body: bytes) -> httpx.Response:
    kind = {"Content-Type": "application/offset+octet-stream"}
    return http.patch(URL, content=body, headers={"Upload-Offset": str(offset), **kind})


def days_left(answer: httpx.Response) -> float:
    return (parsedate_to_datetime(answer.headers["upload-expires"]).timestamp() - time.time()) / DAY_S


def test_answers_say_when_an_upload_expires(http: httpx.Client) -> None:
    assert "expiration" in http.options(URL).headers["tus-extension"].split(",")
    begun = http.post(URL, headers={"Upload-Length": "10"})
    for answer in (begun, http.head(URL), append(http, 0, b"12345")):
        assert 6.9 < days_left(answer) < 7.1


def test_an_abandoned_upload_is_removed_by_upkeep(http: httpx.Client, store: Store, age: Age) -> None:
    begin(http)
    append(http, 0, b"12345")
    age(6 * DAY_S)
    store.collect()
    assert http.head(URL).status_code == 204
    age(2 * DAY_S)
    refused = append(http, 5, b"67890")
    assert (refused.status_code, refused.json()["code"]) == (410, "upload_expired")
    store.collect()
    assert not store.streams.exists("iot/firmware")
    begin(http)


def test_a_request_in_the_second_half_of_the_time_begins_it_anew(http: httpx.Client, age: Age) -> None:
    begin(http)
    age(2 * DAY_S)
    assert 4.9 < days_left(append(http, 0, b"1")) < 5.1
    age(2 * DAY_S)
    assert 6.9 < days_left(append(http, 1, b"2")) < 7.1


@pytest.mark.parametrize("parts", [[b"1234567890"], [b"12345", b"67890"]])
def test_a_finished_upload_stays(http: httpx.Client, store: Store, parts: list[bytes]) -> None:
    begin(http)
    for part in parts:
        answer = append(http, int(http.head(URL).headers["upload-offset"]), part)
    assert "upload-expires" not in {**answer.headers, **http.head(URL).headers}
    assert not store.ephemeral.is_ephemeral("iot/firmware")


@pytest.mark.parametrize(("given", "lifetime_s"), [("off", None), ("60", 60.0)])
def test_the_time_is_a_setting(given: str, lifetime_s: float | None) -> None:
    assert load({"upload_lifetime_s": given}, environment={}).settings.upload_lifetime_s == lifetime_s
