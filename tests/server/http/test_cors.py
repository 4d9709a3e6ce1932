"""Pages of other origins in browsers."""

from __future__ import annotations

import httpx
import pytest

from anabranch.errors import InvalidArgument
from anabranch.server.config import load
from anabranch.store import Store
from tests.server.http.serving import serving

PAGE = {"Origin": "https://app.example"}
ASKED = {
    **PAGE,
    "Access-Control-Request-Method": "PATCH",
    "Access-Control-Request-Headers": "authorization,upload-offset",
}
URL = "/v1/streams/iot/raw/bytes"


def test_no_page_of_another_origin_is_served_unless_it_is_allowed(http: httpx.Client) -> None:
    assert "access-control-allow-origin" not in http.get("/v1/scopes", headers=PAGE).headers
    assert "access-control-allow-origin" not in http.options(URL, headers=ASKED).headers


def test_pages_of_allowed_origins_are_served_and_no_others(store: Store) -> None:
    with (
        serving(store, origins=["https://app.example"]) as running,
        httpx.Client(base_url=running.url, timeout=60) as http,
    ):
        allowed = http.options(URL, headers=ASKED)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "PATCH" in allowed.headers["access-control-allow-methods"]
        assert "upload-offset" in allowed.headers["access-control-allow-headers"]
        refused = http.get("/v1/streams/iot/none", headers=PAGE)  # a page can read an error, too
        assert refused.status_code == 404
        assert refused.headers["access-control-allow-origin"] == "https://app.example"
        head = http.head(URL, headers=PAGE)
        assert "Upload-Offset" in head.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in head.headers
        other = {**ASKED, "Origin": "https://app.example.evil"}
        assert "access-control-allow-origin" not in http.options(URL, headers=other).headers
        assert "access-control-allow-origin" not in http.get("/v1/scopes", headers=other).headers


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/streams/iot/raw/events", "x", "text/plain"),
        ("/v1/call/streams.delete", '{"name": "iot/raw"}', "text/plain"),
        ("/query?db=iot", "q=DROP+MEASUREMENT+raw", "application/x-www-form-urlencoded"),
        ("/write?db=iot", "m value=1", "text/plain"),
    ],
)
def test_no_page_of_another_origin_changes_anything_unasked(
    store: Store, http: httpx.Client, path: str, body: str, kind: str
) -> None:
    """What a page may send without the browser asking first, as a form does."""
    before = [(str(info.name), info.id, store.cuts.tail(info.id)) for info in store.streams.list()]
    for origin in ("https://evil.example", "null"):
        refused = http.post(path, content=body, headers={"Content-Type": kind, "Origin": origin})
        assert refused.status_code == 403, path
        assert "may not call this broker" in refused.text
    assert [(str(info.name), info.id, store.cuts.tail(info.id)) for info in store.streams.list()] == before


def test_a_page_of_the_broker_itself_and_programs_may_write(store: Store, http: httpx.Client) -> None:
    store.scopes.create("own", exist_ok=True)
    host = http.base_url.netloc.decode()
    own: list[dict[str, str]] = [
        {},
        {"Origin": f"http://{host}"},
        {"Origin": "https://behind-a-proxy.example", "Sec-Fetch-Site": "same-origin"},
    ]
    for number, headers in enumerate(own):
        made = http.post("/v1/streams", json={"name": f"own/s{number}"}, headers=headers)
        assert made.status_code == 201, headers


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://*.example", "null"])
def test_what_is_no_origin_is_refused_by_the_settings(origin: str) -> None:
    assert load({"cors_origins": "https://a.example, *"}, environment={}).settings.cors_origins[1] == "*"
    with pytest.raises(InvalidArgument, match="origin"):
        load({"cors_origins": origin}, environment={})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7411", 200),
        ("app.localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:7411", 200),
        ("[::ffff:127.0.0.1]", 200),
        ("broker1:7411", 200),
        ("River.Example:7411", 200),
        ("river.example.", 200),
        ("evil.example", 421),
        ("river.example.evil.example:7411", 421),
        ("127.0.0.1.evil.example", 421),
        ("1.2.3", 421),
    ],
)
def test_without_tokens_a_broker_answers_to_its_own_names_only(store: Store, host: str, status: int) -> None:
    with serving(store, hosts=["river.example"]) as running:
        assert httpx.get(f"{running.url}/v1/scopes", headers={"Host": host}).status_code == status
        assert httpx.get(f"{running.url}/docs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("name", ["https://a.example", "a.example:80", "a b", "*.example"])
def test_what_is_no_name_of_a_host_is_refused_by_the_settings(name: str) -> None:
    assert load({"allowed_hosts": "A.example, b"}, environment={}).settings.allowed_hosts == ("a.example", "b")
    with pytest.raises(InvalidArgument, match="name of a host"):
        load({"allowed_hosts": name}, environment={})
