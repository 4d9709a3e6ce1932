"""Downloads of byte streams, and of ranges of them."""

from __future__ import annotations

import httpx
import pytest

from anabranch import limits
from anabranch.store import Store

URL = "/v1/streams/iot/firmware/bytes"
FILE = bytes(range(256)) * 4
SIZE = len(FILE)


@pytest.fixture
def file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished file of many chunks."""
    monkeypatch.setattr(limits, "BYTE_CHUNK_BYTES", 100)
    with store.bytes("iot/firmware", "xb") as made:
        made.write(FILE)
    store.streams.seal("iot/firmware")


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-304", 5, 305),
        ("bytes=100-199", 100, 200),
        ("BYTES=1000-", 1000, SIZE),
        ("bytes=1000-999999999", 1000, SIZE),
        ("bytes=-1", SIZE - 1, SIZE),
        ("bytes=-999999", 0, SIZE),
    ],
)
def test_a_range_is_sent(http: httpx.Client, file: None, asked: str, start: int, stop: int) -> None:
    answer = http.get(URL, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, FILE[start:stop])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{SIZE}"
    assert answer.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize(
    "asked", [None, "bytes=0-1,5-6", "bytes=5-4", "bytes=-", "bytes=x-", "events=0-1", "bytes 0-1"]
)
def test_all_is_sent_without_one_range_that_makes_sense(http: httpx.Client, file: None, asked: str | None) -> None:
    answer = http.get(URL, headers={} if asked is None else {"Range": asked})
    assert (answer.status_code, answer.content) == (200, FILE)
    assert answer.headers["accept-ranges"] == "bytes" and "content-range" not in answer.headers


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 9}", "bytes=-0"])
def test_a_range_without_a_byte_is_refused_with_the_size(http: httpx.Client, file: None, asked: str) -> None:
    answer = http.get(URL, headers={"Range": asked})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{SIZE}")


def test_a_range_of_another_state_is_all_of_this_one(http: httpx.Client, store: Store) -> None:
    with store.bytes("iot/firmware", "xb") as growing:
        growing.write(b"one")
        growing.flush()
        first = http.get(URL)
        tag = {"If-Range": first.headers["etag"]}
        assert http.get(URL, headers={"Range": "bytes=1-", **tag}).content == b"ne"
        assert http.get(URL, headers={"If-None-Match": f'"x", {first.headers["etag"]}'}).status_code == 304
        growing.write(b"two")
    answer = http.get(URL, headers={"Range": "bytes=1-", **tag})
    assert (answer.status_code, answer.content) == (200, b"onetwo")
    assert http.get(URL, headers={"If-None-Match": first.headers["etag"]}).content == b"onetwo"
    assert http.get(URL, headers={"If-Match": first.headers["etag"]}).status_code == 412
    assert http.get(URL, headers={"If-Match": answer.headers["etag"]}).status_code == 200


def test_head_says_what_a_get_would_say(http: httpx.Client, file: None) -> None:
    head, got = http.head(URL), http.get(URL)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(SIZE))
    for name in ("etag", "content-type", "content-disposition", "accept-ranges", "x-content-type-options"):
        assert head.headers[name] == got.headers[name]
    assert head.headers["content-disposition"] == 'attachment; filename="firmware"'


def test_what_was_truncated_is_not_part_of_the_file(http: httpx.Client, store: Store) -> None:
    with store.bytes("iot/firmware", "xb") as made:
        made.write(FILE)
        made.truncate_before(10)
    answer = http.get(URL)
    assert (answer.content, answer.headers["anabranch-head"]) == (FILE[10:], "10")
    assert http.get(URL, headers={"Range": "bytes=0-4"}).content == FILE[10:15]


def test_an_empty_file_is_a_file(http: httpx.Client, store: Store) -> None:
    assert http.post(URL, content=b"").headers["upload-complete"] == "?1"
    answer = http.get(URL)
    assert (answer.status_code, answer.content) == (200, b"")
    assert http.get(URL, headers={"Range": "bytes=0-"}).status_code == 416


@pytest.mark.parametrize("kind", ["text/plain; of=€", "text/html\r\nX-Other: 1", "no type", ""])
def test_a_tag_that_is_no_media_type_is_not_sent_as_one(
    http: httpx.Client, store: Store, file: None, kind: str
) -> None:
    store.streams.tag("iot/firmware", {"file.type": kind})
    answer = http.get(URL)
    assert (answer.status_code, answer.content) == (200, FILE)
    assert answer.headers["content-type"] == "application/octet-stream" and "x-other" not in answer.headers


def test_a_weak_tag_matches_for_a_cache_but_not_for_a_change(http: httpx.Client, file: None) -> None:
    tag = http.get(URL).headers["etag"]
    assert http.get(URL, headers={"If-None-Match": f"W/{tag}"}).status_code == 304
    assert http.get(URL, headers={"If-Match": f"W/{tag}"}).status_code == 412
    assert http.get(URL, headers={"If-Match": '"other"', "If-None-Match": tag}).status_code == 412
