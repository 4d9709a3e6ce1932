"""Durable Streams over real connections; the public conformance suite has many more cases."""

from __future__ import annotations

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.state.lineage import Fork
from anabranch.server.http.durable_streams.forks import make_fork
from anabranch.store import Store
from tests.server.kit import BrokerProcess

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}


def producer(sequence: int, epoch: int = 0) -> dict[str, str]:
    return {**TEXT, "Producer-Id": "p", "Producer-Epoch": str(epoch), "Producer-Seq": str(sequence)}


def events(text: str) -> list[tuple[str, str]]:
    """The server-sent events of an answer."""
    found = []
    for part in text.strip().split("\n\n"):
        first, *lines = part.split("\n")
        found.append((first.removeprefix("event: "), "\n".join(line.removeprefix("data:") for line in lines)))
    return found


def test_what_is_appended_is_read_from_any_offset(http: httpx.Client) -> None:
    made = http.put("/streams/iot/log", headers=TEXT, content=b"one,")
    assert made.status_code == 201
    assert made.headers["location"].endswith("/streams/iot/log")
    again = http.put("/streams/iot/log", headers=TEXT, content=b"one,")
    assert (again.status_code, again.headers["stream-next-offset"]) == (200, made.headers["stream-next-offset"])
    assert http.put("/streams/iot/log", headers=JSON).status_code == 409
    two = http.post("/streams/iot/log", headers=TEXT, content=b"two")
    assert two.status_code == 204
    whole = http.get("/streams/iot/log")
    assert (whole.text, whole.headers["content-type"], whole.headers["stream-up-to-date"]) == (
        "one,two",
        "text/plain",
        "true",
    )
    assert whole.headers["x-content-type-options"] == "nosniff"
    rest = http.get("/streams/iot/log", params={"offset": made.headers["stream-next-offset"]})
    assert rest.text == "two"
    assert rest.headers["stream-next-offset"] == two.headers["stream-next-offset"] > made.headers["stream-next-offset"]
    for known in (whole.headers["etag"], f'"other", W/{whole.headers["etag"]}'):
        unchanged = http.get("/streams/iot/log", headers={"If-None-Match": known})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    head = http.head("/streams/iot/log")
    assert head.headers["stream-next-offset"] == two.headers["stream-next-offset"]
    assert http.delete("/streams/iot/log").status_code == 204
    assert http.get("/streams/iot/log").status_code == 404
    assert http.delete("/streams/iot/log").status_code == 404


def test_bad_requests_have_one_clear_error(http: httpx.Client) -> None:
    http.put("/streams/iot/log", headers=TEXT)
    assert http.post("/streams/iot/log", headers=TEXT).json()["detail"] == "the body is empty"
    assert http.post("/streams/iot/log", headers=JSON, content=b"1").json()["code"] == "content_type_mismatch"
    for offset in ("", "7", "-2", "0,1", "0_1"):
        assert http.get("/streams/iot/log", params={"offset": offset}).status_code == 400, offset
    assert http.get("/streams/iot/log", params={"live": "sse"}).status_code == 400
    for ttl in ("01", "+1", "1.5", "-1", "1e3"):
        assert http.put("/streams/iot/bad", headers={"Stream-TTL": ttl}).status_code == 400, ttl
    assert http.get("/streams/iot/sensors").status_code == 409
    assert http.put("/streams/nowhere/log").status_code == 404
    for source in ("/streams/iot/none", "nowhere", ""):
        assert http.put("/streams/iot/fork", headers={"Stream-Forked-From": source}).status_code in (400, 404), source
    assert http.get("/streams/iot/fork").status_code == 404


@pytest.mark.parametrize("tag", ["durable.until", "durable.ttl"])
def test_tags_that_hold_no_time_are_ignored(http: httpx.Client, store: Store, tag: str) -> None:
    http.put("/streams/iot/log", headers=TEXT, content=b"one")
    store.streams.tag("iot/log", {tag: "soon"})
    assert http.get("/streams/iot/log").content == b"one"


def test_json_messages_are_flattened_by_one_level(http: httpx.Client) -> None:
    http.put("/streams/iot/json", headers=JSON)
    assert http.get("/streams/iot/json").json() == []
    http.post("/streams/iot/json", headers=JSON, content=b'[{"a": 1}, [2, 3]]')
    http.post("/streams/iot/json", headers=JSON, content=b'"x"')
    assert http.get("/streams/iot/json").json() == [{"a": 1}, [2, 3], "x"]
    for body in (b"[]", b"{", b"[1,]", b'"\xff"'):
        assert http.post("/streams/iot/json", headers=JSON, content=body).status_code == 400, body


def test_an_append_of_a_producer_takes_effect_once(http: httpx.Client) -> None:
    http.put("/streams/iot/log", headers=TEXT)
    sent = [http.post("/streams/iot/log", headers=producer(n), content=b"x") for n in (0, 1, 0, 3)]
    assert [each.status_code for each in sent] == [200, 200, 204, 409]
    assert sent[2].headers["producer-seq"] == "1"
    assert (sent[3].headers["producer-expected-seq"], sent[3].headers["producer-received-seq"]) == ("2", "3")
    assert http.post("/streams/iot/log", headers=producer(1, epoch=1), content=b"y").status_code == 400
    assert http.post("/streams/iot/log", headers=producer(0, epoch=1), content=b"y").status_code == 200
    stale = http.post("/streams/iot/log", headers=producer(2), content=b"z")
    assert (stale.status_code, stale.headers["producer-epoch"]) == (403, "1")
    assert http.get("/streams/iot/log").text == "xxy"


def test_stream_seq_has_to_rise_as_text_also_past_appends_without_it(http: httpx.Client, store: Store) -> None:
    http.put("/streams/iot/log", headers=TEXT)
    answers = []
    for sequence in ("09", "10", None, "10", "2", "11"):
        headers = TEXT if sequence is None else {**TEXT, "Stream-Seq": sequence}
        answers.append(http.post("/streams/iot/log", headers=headers, content=(sequence or "-").encode()).status_code)
    assert answers == [204, 204, 204, 409, 204, 409]
    assert http.get("/streams/iot/log").text == "0910-2"


def test_appends_at_once_are_all_stored_and_stream_seq_holds_between_them(http: httpx.Client) -> None:
    http.put("/streams/iot/log", headers=JSON)

    def send(number: int) -> tuple[int, int]:
        headers = {**JSON, "Stream-Seq": f"{number:03}"} if number % 2 else JSON
        return number, http.post("/streams/iot/log", headers=headers, content=b"%d" % number).status_code

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(80)))
    stored = http.get("/streams/iot/log").json()
    assert sorted(stored) == [number for number, status in answers if status == 204]
    assert {status for _, status in answers} <= {204, 409}
    assert all(status == 204 for number, status in answers if number % 2 == 0)
    numbered = [number for number in stored if number % 2]
    assert numbered == sorted(numbered)


def test_a_closed_stream_takes_no_more(http: httpx.Client) -> None:
    http.put("/streams/iot/log", headers=TEXT)
    open_tag = http.get("/streams/iot/log").headers["etag"]
    closing = {**producer(0), "Stream-Closed": "true"}
    assert http.post("/streams/iot/log", headers=closing, content=b"end").headers["stream-closed"] == "true"
    assert http.post("/streams/iot/log", headers=closing, content=b"end").status_code == 204
    refused = http.post("/streams/iot/log", headers=TEXT, content=b"more")
    assert (refused.status_code, refused.headers["stream-closed"]) == (409, "true")
    whole = http.get("/streams/iot/log")
    assert (whole.text, whole.headers["stream-closed"]) == ("end", "true")
    assert whole.headers["etag"] != open_tag
    tail = http.get("/streams/iot/log", params={"offset": "now", "live": "long-poll"})
    assert (tail.status_code, tail.headers["stream-closed"]) == (204, "true")
    assert http.put("/streams/iot/shut", headers={**TEXT, "Stream-Closed": "true"}, content=b"x").status_code == 201
    assert http.post("/streams/iot/shut", headers=TEXT, content=b"y").status_code == 409


def test_a_stream_expires_after_its_time(http: httpx.Client) -> None:
    http.put("/streams/iot/brief", headers={**TEXT, "Stream-TTL": "2"}, content=b"x")
    http.put("/streams/iot/past", headers={**TEXT, "Stream-Expires-At": "2030-01-01T00:00:00Z"})
    assert http.head("/streams/iot/past").headers["stream-expires-at"] == "2030-01-01T00:00:00Z"
    time.sleep(1.1)
    assert http.get("/streams/iot/brief").text == "x"
    time.sleep(1.1)
    assert http.head("/streams/iot/brief").headers["stream-ttl"] == "2"
    time.sleep(1.0)
    assert http.get("/streams/iot/brief").status_code == 404


def test_a_fork_shares_what_its_source_held_and_keeps_the_name_of_a_deleted_one_in_use(
    http: httpx.Client, store: Store
) -> None:
    http.put("/streams/iot/log", headers=TEXT, content=b"one,")
    forked = {"Stream-Forked-From": "/streams/iot/log"}
    assert http.put("/streams/iot/fork", headers=forked).status_code == 201
    assert http.post("/streams/iot/fork", headers=TEXT, content=b"two").status_code == 204
    assert http.delete("/streams/iot/log").status_code == 204
    assert http.get("/streams/iot/log").json()["code"] == "stream_gone"
    assert store.streams.get("iot/log").sealed and http.get("/streams/iot/fork").text == "one,two"
    store.streams.delete("iot/fork")  # not by this protocol
    assert http.get("/streams/iot/log").status_code == 404
    assert not store.streams.exists("iot/log")


def test_a_source_that_is_deleted_as_a_stream_leaves_its_forks(http: httpx.Client, store: Store) -> None:
    http.put("/streams/iot/log", headers=TEXT, content=b"one")
    http.put("/streams/iot/fork", headers={"Stream-Forked-From": "/iot/log"})
    store.streams.delete("iot/log")
    assert http.put("/streams/iot/log", headers=JSON).status_code == 201
    assert http.get("/streams/iot/fork").text == "one"
    assert http.delete("/streams/iot/fork").status_code == 204
    assert http.head("/streams/iot/log").status_code == 200


def test_the_same_fork_again_goes_on_where_the_first_request_broke_off(http: httpx.Client, store: Store) -> None:
    http.put("/streams/iot/log", headers=TEXT, content=b"hello")
    start = f"{0:016d}_{0:016d}"
    headers = {"Stream-Forked-From": "/streams/iot/log", "Stream-Fork-Offset": start, "Stream-Fork-Sub-Offset": "3"}
    info = store.streams.get("iot/log")
    cut = ab.StreamCut.of(info.id, {ab.SegmentId(0, 0): 0})
    make_fork(store, ab.StreamName("iot", "fork"), Fork(info.id, 0, 3), cut, dict(info.tags))
    assert http.put("/streams/iot/fork", headers=headers, content=b"p!").status_code == 200
    assert http.get("/streams/iot/fork").text == "help!"
    assert http.put("/streams/iot/fork", headers=headers, content=b"p!").status_code == 200
    assert http.get("/streams/iot/fork").text == "help!"


@pytest.mark.parametrize("path", ["", "/streams", "log", "/streams/iot/", "https://other/streams/iot/log"])
def test_a_fork_of_what_is_no_stream_is_refused(http: httpx.Client, path: str) -> None:
    assert http.put("/streams/iot/fork", headers={"Stream-Forked-From": path}).status_code in (400, 404)


def test_a_long_poll_returns_what_comes(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    http.put("/streams/iot/log", headers=TEXT)
    soon = threading.Timer(0.3, lambda: httpx.post(f"{http.base_url}/streams/iot/log", headers=TEXT, content=b"new"))
    soon.start()
    found = http.get("/streams/iot/log", params={"offset": "now", "live": "long-poll"})
    soon.join()
    assert (found.text, found.headers["stream-up-to-date"]) == ("new", "true")
    monkeypatch.setattr(limits, "DURABLE_POLL_S", 0.1)
    late = http.get("/streams/iot/log", params={"offset": "now", "live": "long-poll"})
    assert (late.status_code, late.headers["stream-next-offset"]) == (204, found.headers["stream-next-offset"])
    cursor = late.headers["stream-cursor"]
    later = http.get("/streams/iot/log", params={"offset": "now", "live": "long-poll", "cursor": cursor})
    assert int(later.headers["stream-cursor"]) > int(cursor)


def test_server_sent_events_end_with_the_close(http: httpx.Client) -> None:
    http.put("/streams/iot/json", headers=JSON, content=b'["a"]')
    http.put("/streams/iot/bytes", headers={"Content-Type": "image/png"}, content=b"\x00\r\n")
    for name, last in (("json", b'"b"'), ("bytes", b"end")):
        kind = http.head(f"/streams/iot/{name}").headers["content-type"]
        end = {"Content-Type": kind, "Stream-Closed": "true"}
        address = f"{http.base_url}/streams/iot/{name}"
        soon = threading.Timer(0.3, httpx.post, (address,), {"headers": end, "content": last})
        soon.start()
        found = http.get(f"/streams/iot/{name}", params={"offset": "-1", "live": "sse"})
        soon.join()
        told = events(found.text)
        data = [value for event, value in told if event == "data"]
        if name == "json":
            assert [json.loads(each) for each in data] == [["a"], ["b"]]
        else:
            assert found.headers["stream-sse-data-encoding"] == "base64"
            assert [base64.b64decode(each) for each in data] == [b"\x00\r\n", b"end"]
        assert json.loads(told[-1][1])["streamClosed"] is True


@pytest.mark.slow
def test_a_producer_resumes_at_a_broker_after_kill_9(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("iot")
    with BrokerProcess(tmp_path / "store", folder=tmp_path) as broker:
        address = f"{broker.http}/streams/iot/log"
        httpx.put(address, headers=TEXT)
        for number in range(3):
            assert httpx.post(address, headers=producer(number), content=b"%d," % number).status_code == 200
        broker.kill()
    with BrokerProcess(tmp_path / "store", folder=tmp_path) as broker:
        address = f"{broker.http}/streams/iot/log"
        answers = [httpx.post(address, headers=producer(n), content=b"%d," % n).status_code for n in (2, 3)]
        assert answers == [204, 200]
        assert httpx.get(address).text == "0,1,2,3,"
