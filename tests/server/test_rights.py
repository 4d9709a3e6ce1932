"""A right is checked again while a call lasts, by the stream's present name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import PermissionDenied, StreamNotFound
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.events.front import EventFront
from anabranch.server.grpc.read import follow, read
from anabranch.server.rights import StreamRight
from anabranch.store import Store
from anabranch.wire.v1 import store_pb2 as v1
from tests.server.http.serving import serving


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "store", create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/a")
        with made.writer("s/a") as writer:
            writer.write(b"x")
        with made.bytes("s/bytes", "xb") as file:
            file.write(b"x" * 100)
        yield made


def test_it_is_that_to_the_stream_by_its_present_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    guard, asked = OpenGuard(), list[tuple[str, str, str]]()
    monkeypatch.setattr(guard, "authorize", lambda _, operation, name, verb: asked.append((operation, name, verb)))
    caller = guard.authenticate(token=None, certificate=None, peer="here")
    info = store.streams.get("s/a")
    follow = StreamRight(store, guard, caller, info.id, "read", verb="follow")
    append = StreamRight(store, guard, caller, info.id, "write", verb="append")
    store.streams.rename("s/a", "s/moved")
    store.streams.create("s/a")
    follow.check()
    assert not follow.is_due() and asked == [], "it was checked a moment ago"
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    follow.check()
    append.check()
    assert asked == [("read", "s/moved", "follow"), ("write", "s/moved", "append")]
    store.streams.delete("s/moved")
    with pytest.raises(StreamNotFound):
        append.check()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/s/a/events?format=ndjson",
        "/v1/streams/s/bytes/bytes",
        "/v1/streams/s/a/events?follow&from=head&format=ndjson",
        "/streams/s/messages?offset=-1&live=sse",
    ],
)
def test_an_answer_over_http_goes_by_it(store: Store, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    checked: list[StreamRight] = []
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    monkeypatch.setattr(StreamRight, "check", lambda right: checked.append(right))
    with serving(store) as served, httpx.Client(base_url=served.url, timeout=60) as http:
        assert http.put("/streams/s/messages", headers={"Content-Type": "text/plain"}, content=b"x").status_code == 201
        with http.stream("GET", path) as answer:
            assert answer.status_code == 200
            assert next(answer.iter_raw())
    assert checked


@pytest.mark.parametrize("call", [read, follow])
async def test_an_answer_over_grpc_ends_where_its_caller_has_lost_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Awaitable[None]]
) -> None:
    guard, sent = OpenGuard(), list[object]()

    async def send(message: object) -> None:
        sent.append(message)

    def authorize(*_: object, **__: object) -> None:
        raise PermissionDenied("no longer")

    front = EventFront(Broker(store, guard))
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    monkeypatch.setattr(guard, "authorize", authorize)
    made: Any = SimpleNamespace(front=front, principal=Principal("anonymous", ()), send=send)
    request = (v1.ReadRequest if call is read else v1.FollowRequest)(stream="s/a", start="head")
    try:
        with pytest.raises(PermissionDenied):
            await call(made, request, store.streams.get("s/a"))
    finally:
        await front.close()
    assert len(sent) == (0 if call is read else 1), "a follower is told where it begins"
