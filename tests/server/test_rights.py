"""The right to read is checked again while a call lasts, by the stream's present name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.security.guard import OpenGuard
from anabranch.server.rights import RightToRead
from anabranch.store import Store
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
    guard, asked = OpenGuard(), list[str]()
    monkeypatch.setattr(guard, "authorize", lambda *call, **_: asked.append(call[2]))
    right = RightToRead(
        store, guard, guard.authenticate(token=None, certificate=None, peer="here"), store.streams.get("s/a").id
    )
    store.streams.rename("s/a", "s/moved")
    right.check()
    assert not right.is_due() and asked == [], "it was checked a moment ago"
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    right.check()
    assert asked == ["s/moved"]


@pytest.mark.parametrize("path", ["s/a/events?format=ndjson", "s/bytes/bytes"])
def test_an_answer_over_http_goes_by_it(store: Store, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    checked: list[RightToRead] = []
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    monkeypatch.setattr(RightToRead, "check", lambda right: checked.append(right))
    with serving(store) as served, httpx.Client(base_url=served.url, timeout=60) as http:
        assert http.get(f"/v1/streams/{path}").status_code == 200
    assert checked
