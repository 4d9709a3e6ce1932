"""Single events that take the shortest way, whatever comes with them on the connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from anabranch import limits
from anabranch.server.http import direct_append
from anabranch.store import Store
from anabranch.writing.acknowledgement import Ack
from tests.server.http.serving import Serving
from tests.waiting import PATIENCE_S, until

URL = "/v1/streams/iot/raw/events"


@pytest.fixture
def taken(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stream that was used a moment ago; and the ways that events then take."""
    assert http.post(URL, json={"payload": "first"}).status_code == 200
    found: list[str] = []

    class Noting(direct_append.DirectAppend):
        __slots__ = ()

        def _finish(self, ack: Ack) -> None:
            found.append("direct")
            super()._finish(ack)

        def hand_over(self) -> None:
            found.append("handed over")
            super().hand_over()

    monkeypatch.setattr(direct_append, "DirectAppend", Noting)
    return found


def request(payload: str, *headers: str) -> tuple[bytes, bytes]:
    body = f'{{"payload":"{payload}"}}'.encode()
    lines = [f"POST {URL} HTTP/1.1", "Host: a", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode(), body


@contextmanager
def connection(served: Serving) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as client:
        yield client


def answers(client: socket.socket, count: int) -> bytes:
    found = b""
    while found.count(b'"pointers"') < count:
        piece = client.recv(4096)
        assert piece, found
        found += piece
    return found


def stored(store: Store) -> list[bytes]:
    with store.reader("iot/raw") as reader:
        return [each.body for each in reader][1:]


def test_a_body_that_comes_with_its_head_or_after_it_is_appended(
    served: Serving, store: Store, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_DIRECT_BODY_S", PATIENCE_S)
    with connection(served) as client:
        for number, parts in enumerate(([b"".join(request("one"))], request("two"))):
            for part in parts:
                client.sendall(part)
            assert answers(client, 1).startswith(b"HTTP/1.1 200 OK\r\n"), number
    assert stored(store) == [b"one", b"two"] and set(taken) == {"direct"}


def test_a_body_that_does_not_come_at_once_is_left_to_the_endpoint(
    served: Serving, store: Store, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_DIRECT_BODY_S", 0.001)
    with connection(served) as client:
        head, body = request("slow")
        client.sendall(head + body[:4])
        until(lambda: taken == ["handed over"])
        client.sendall(body[4:])
        answers(client, 1)
    assert stored(store) == [b"slow"]


def test_requests_that_do_not_wait_for_answers_get_them_in_order(
    served: Serving, store: Store, taken: list[str]
) -> None:
    names = [f"n{number}" for number in range(20)]
    with connection(served) as client:
        client.sendall(b"".join(part for name in names for part in request(name)))
        found = answers(client, len(names)).decode()
    assert stored(store) == [name.encode() for name in names]
    offsets = [int(line.partition('"start":')[2].partition(",")[0]) for line in found.split("\r\n") if "start" in line]
    assert offsets == list(range(1, 21)) and "direct" in taken


def test_a_caller_who_does_not_wait_for_the_answer_leaves_the_event(
    served: Serving, store: Store, taken: list[str]
) -> None:
    with connection(served) as client:
        client.sendall(b"".join(request("gone")))
    until(lambda: stored(store) == [b"gone"])
    with connection(served) as client:
        client.sendall(request("never")[0])  # and no body
    with connection(served) as client:
        client.sendall(b"".join(request("after")))
        answers(client, 1)
    assert stored(store) == [b"gone", b"after"]


@pytest.mark.parametrize(
    "header", ["Connection: close", "Origin: https://a.example", "Producer-Id: p", "Idempotency-Key: k"]
)
def test_a_request_that_asks_for_more_goes_to_the_endpoint(served: Serving, taken: list[str], header: str) -> None:
    with connection(served) as client:
        client.sendall(b"".join(request("x", header)))
        assert client.recv(4096).startswith(b"HTTP/1.1 ")
    assert taken == []


def test_a_wrong_event_is_a_problem_and_the_connection_goes_on(served: Serving, store: Store, taken: list[str]) -> None:
    body = b'{"payload": '
    head = request("x")[0].replace(b"Content-Length: 15", b"Content-Length: %d" % len(body))
    with connection(served) as client:
        client.sendall(head + body)
        found = client.recv(4096)
        assert found.startswith(b"HTTP/1.1 400 ") and b"application/problem+json" in found
        client.sendall(b"".join(request("right")))
        answers(client, 1)
    assert stored(store) == [b"right"]
