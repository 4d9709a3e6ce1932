"""Uploads that can be resumed, by tus 1.0 and by the IETF's draft."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from anabranch import limits
from anabranch.store import Store
from tests.server.http.serving import Serving
from tests.waiting import until

URL = "/v1/streams/iot/firmware/bytes"
FILE = bytes(range(256)) * 40


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def begun(http: httpx.Client, **more: str) -> httpx.Response:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(len(FILE))}
    answer = http.post(URL, headers=headers | {name.replace("_", "-"): value for name, value in more.items()})
    assert answer.status_code == 201, answer.text
    return answer


def patched(http: httpx.Client, offset: int, body: bytes | Iterator[bytes], **more: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    kind = {"Content-Type": "application/offset+octet-stream"}
    return http.patch(URL, content=body, headers={"Upload-Offset": str(offset), **kind, **headers})


def resumed(http: httpx.Client) -> bool:
    """Whether all that is missing could be sent."""
    offset = int(http.head(URL).headers["upload-offset"])
    return patched(http, offset, FILE[offset:]).status_code == 204


def until_stored(http: httpx.Client, count: int) -> None:
    until(lambda: int(http.head(URL).headers["upload-offset"]) >= count)


def stored(store: Store) -> bytes:
    with store.bytes("iot/firmware") as file:
        return file.read()


def test_a_file_is_uploaded_in_parts_and_finished_with_its_last_byte(http: httpx.Client, store: Store) -> None:
    metadata = f"filename {base64_of('größe 1.bin'.encode())},filetype {base64_of(b'text/csv')}"
    answer = begun(http, Upload_Metadata=metadata)
    assert (answer.headers["location"], answer.headers["tus-resumable"]) == (URL, "1.0.0")
    assert http.head(URL).headers["upload-offset"] == "0"
    for start in range(0, len(FILE), 4096):
        assert http.get(URL).json()["code"] == "upload_unfinished"
        answer = patched(http, start, FILE[start : start + 4096])
        assert answer.status_code == 204
        assert answer.headers["upload-offset"] == str(min(len(FILE), start + 4096))
    assert answer.headers["upload-complete"] == "?1"
    assert store.streams.get("iot/firmware").sealed and stored(store) == FILE
    got = http.get(URL)
    assert (got.content, got.headers["content-type"]) == (FILE, "text/csv")
    assert "filename*=UTF-8''gr%C3%B6%C3%9Fe%201.bin" in got.headers["content-disposition"]


def test_a_wrong_offset_is_refused_with_the_right_one_and_changes_nothing(http: httpx.Client, store: Store) -> None:
    begun(http)
    patched(http, 0, FILE[:1000])
    for offset in (0, 999, 1001, 10**17):
        answer = patched(http, offset, b"other")
        assert (answer.status_code, answer.json()["code"]) == (409, "offset_mismatch")
        assert answer.headers["upload-offset"] == "1000"
    assert patched(http, 1000, FILE[1000:]).status_code == 204
    assert patched(http, 1000, FILE[1000:]).status_code == 409  # its answer was lost, and it is sent again
    assert patched(http, len(FILE), b"").status_code == 204
    assert stored(store) == FILE


def test_more_bytes_than_the_length_are_refused(http: httpx.Client, store: Store) -> None:
    begun(http)
    assert patched(http, 0, FILE + b"x").status_code == 413
    assert http.head(URL).headers["upload-offset"] == "0"
    assert patched(http, 0, iter([FILE[:5000], FILE[5000:] + b"x"])).status_code == 413  # its length is not said
    assert http.head(URL).headers["upload-complete"] == "?1"
    assert stored(store) == FILE


def test_what_came_before_a_connection_broke_is_kept(
    served: Serving, http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_PART_BYTES", 1000)
    begun(http)
    address = urlsplit(served.url)
    with socket.create_connection((str(address.hostname), served.port)) as client:
        head = f"PATCH {URL} HTTP/1.1\r\nHost: a\r\nUpload-Offset: 0\r\nContent-Length: {len(FILE)}\r\n\r\n"
        client.sendall(head.encode() + FILE[:7000])
        until(lambda: http.head(URL).headers["upload-offset"] == "7000")
        client.sendall(FILE[7000:7100])
    until(lambda: resumed(http))
    assert stored(store) == FILE


def test_a_request_that_hangs_is_fenced_off_by_the_next(
    served: Serving, http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_PART_BYTES", 1000)
    begun(http)
    address = urlsplit(served.url)
    with socket.create_connection((str(address.hostname), served.port)) as hanging:
        head = f"PATCH {URL} HTTP/1.1\r\nHost: a\r\nUpload-Offset: 0\r\nContent-Length: {len(FILE)}\r\n\r\n"
        hanging.sendall(head.encode() + FILE[:3000])
        until(lambda: http.head(URL).headers["upload-offset"] == "3000")
        assert patched(http, 3000, FILE[3000:5000]).status_code == 204
        hanging.sendall(b"x" * (len(FILE) - 3000))
        answer = b""
        while b"fenced" not in answer and (more := hanging.recv(4096)):  # its head may come before its body
            answer += more
        assert answer.startswith(b"HTTP/1.1 409") and b"fenced" in answer
    assert patched(http, 5000, FILE[5000:]).status_code == 204
    assert stored(store) == FILE


def test_parts_are_stored_while_the_body_comes(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_PART_BYTES", 1000)
    begun(http)

    def body() -> Iterator[bytes]:
        for start in range(0, len(FILE), 500):
            yield FILE[start : start + 500]
            if start >= 3000:  # not all in one go
                until_stored(http, start - 2000)

    assert patched(http, 0, body()).status_code == 204
    assert stored(store) == FILE


@pytest.mark.parametrize("complete", [None, "?1"])
def test_the_body_of_the_first_request_may_be_the_whole_file(
    http: httpx.Client, store: Store, complete: str | None
) -> None:
    headers = {"Content-Type": "image/png", "Idempotency-Key": f"once {complete}"}
    headers |= {} if complete is None else {"Upload-Complete": complete}
    for _ in range(2):  # asked again, it stores nothing
        answer = http.post(URL, content=FILE, headers=headers)
        assert (answer.status_code, answer.headers["upload-offset"]) == (201, str(len(FILE)))
        assert answer.headers["upload-complete"] == "?1"
    assert stored(store) == FILE
    assert http.get(URL).headers["content-type"] == "image/png"
    assert http.post(URL, content=FILE).json()["code"] == "stream_exists"


def test_a_length_may_come_late(http: httpx.Client, store: Store) -> None:
    assert http.post(URL, headers={"Upload-Defer-Length": "1"}).status_code == 201
    assert "upload-length" not in http.head(URL).headers
    patched(http, 0, FILE[:100])
    assert patched(http, 100, FILE[100:200], Upload_Length=str(len(FILE))).headers["upload-length"] == str(len(FILE))
    assert patched(http, 200, b"", Upload_Length="201").json()["code"] == "upload_differs"
    assert patched(http, 200, FILE[200:]).headers["upload-complete"] == "?1"
    assert stored(store) == FILE


def test_the_drafts_upload_ends_with_the_request_that_says_so(http: httpx.Client, store: Store) -> None:
    answer = http.post(URL, content=FILE[:300], headers={"Upload-Complete": "?0"})
    assert (answer.status_code, answer.headers["upload-offset"]) == (201, "300")
    assert http.head(URL).headers["upload-complete"] == "?0"
    assert patched(http, 300, FILE[300:], Upload_Complete="?1").headers["upload-complete"] == "?1"
    assert stored(store) == FILE


def test_a_file_that_ends_before_its_length_is_not_finished(http: httpx.Client) -> None:
    begun(http)
    answer = patched(http, 0, FILE[:300], Upload_Complete="?1")
    assert (answer.status_code, answer.json()["code"]) == (409, "upload_differs")
    assert http.head(URL).headers["upload-complete"] == "?0"


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_a_part_with_another_checksum_is_not_stored(http: httpx.Client, store: Store, algorithm: str) -> None:
    begun(http)
    right = f"{algorithm} {base64_of(hashlib.new(algorithm, FILE).digest())}"
    answer = patched(http, 0, FILE[:-1] + b"x", Upload_Checksum=right)
    assert (answer.status_code, answer.json()["code"]) == (460, "checksum_mismatch")
    assert http.head(URL).headers["upload-offset"] == "0"
    assert patched(http, 0, FILE, Upload_Checksum=right).status_code == 204
    assert stored(store) == FILE


@pytest.mark.parametrize("late", [False, True])
def test_the_digest_of_the_whole_file_is_verified_before_it_is_finished(http: httpx.Client, late: bool) -> None:
    right = {"Repr_Digest": f"sha-256=:{base64_of(hashlib.sha256(FILE).digest())}:"}
    begun(http, **({} if late else right))
    patched(http, 0, FILE[:10])
    assert patched(http, 10, FILE[10:], **(right if late else {})).headers["upload-complete"] == "?1"
    assert http.get(URL).headers["repr-digest"] == right["Repr_Digest"]


def test_a_file_with_another_digest_can_only_be_deleted(http: httpx.Client) -> None:
    begun(http, Repr_Digest=f"sha-256=:{base64_of(hashlib.sha256(b'other').digest())}:")
    for _ in range(2):
        assert (patched(http, 0, FILE).status_code, http.head(URL).status_code, http.get(URL).status_code) == (422,) * 3
    assert http.delete(URL).status_code == 204
    begun(http)


def test_an_upload_whose_last_answer_was_lost_is_finished_by_the_next_look(http: httpx.Client, store: Store) -> None:
    begun(http)
    with store.bytes("iot/firmware", "ab") as file:  # as a broker that was killed between the bytes and the seal
        file.write(FILE)
    assert http.head(URL).headers["upload-complete"] == "?1"
    assert store.streams.get("iot/firmware").sealed


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Upload-Length": "x"}, 400),
        ({"Upload-Length": "-1"}, 400),
        ({"Upload-Length": str(limits.UPLOAD_BYTES_MAX + 1)}, 413),
        ({"Upload-Defer-Length": "2"}, 400),
        ({"Upload-Length": "1", "Upload-Defer-Length": "1"}, 400),
        ({"Upload-Length": "1", "Upload-Metadata": "filename ***"}, 400),
        ({"Upload-Complete": "yes"}, 400),
        ({"Upload-Length": "1", "Repr-Digest": "sha-256=:AAAA:"}, 400),
        ({"Upload-Length": "1", "Tus-Resumable": "0.2.2"}, 412),
        ({"Upload-Length": "1", "Content-Encoding": "gzip"}, 415),
    ],
)
def test_what_makes_no_sense_is_refused_and_creates_nothing(
    http: httpx.Client, store: Store, headers: dict[str, str], status: int
) -> None:
    answer = http.post(URL, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert not store.streams.exists("iot/firmware")


def test_a_stream_of_events_is_neither_uploaded_to_nor_downloaded_nor_deleted(http: httpx.Client, store: Store) -> None:
    events = "/v1/streams/iot/sensors/bytes"
    for answer in (
        http.get(events),
        http.patch(events, headers={"Upload-Offset": "0"}, content=b"x"),
        http.delete(events),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    assert store.streams.exists("iot/sensors")


def test_options_say_what_of_tus_is_served(http: httpx.Client) -> None:
    answer = http.options(URL)
    assert (answer.status_code, answer.headers["tus-version"]) == (204, "1.0.0")
    assert "creation" in answer.headers["tus-extension"].split(",")
