"""Every HTTP endpoint × every caller, over real connections. The table of endpoints is the app's own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from anabranch.server.http.table import ENDPOINTS
from tests.hosted import Hosted
from tests.server.access.credentials import KNOWN, LETTERS, STRANGERS, World, may, world
from tests.server.http.serving import serving

# Pages that tell nothing of the store, so anybody may see them. A new one has to be added here.
OPEN = {
    ("GET", "/docs"),
    ("GET", "/upload"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/ping"),
    ("HEAD", "/ping"),
    ("OPTIONS", "/v1/streams/{scope}/{name}/bytes"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, httpx.Client]]:
    with (
        world(tmp_path_factory.mktemp("http")) as made,
        serving(made.store, made.guard) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        yield made, client


def status(served: tuple[World, httpx.Client], caller: str, method: str, path: str) -> int:
    token = served[0].tokens[caller]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with served[1].stream(method, path, headers=headers, content=b"{" if method != "GET" else None) as answer:
        return answer.status_code


def filled(path: str) -> str:
    """A path of the table with the names of the stream."""
    return (
        path.replace("{scope}", "iot")
        .replace("{name}", "sensors")
        .replace("{name:path}", "sensors")
        .replace("{result:path}", "1")
    )


def test_only_listed_pages_are_open_and_what_changes_something_is_no_reading() -> None:
    assert {(each.method, each.path) for each in ENDPOINTS if each.public} == OPEN
    for each in ENDPOINTS:
        assert each.operation is None or not each.public, each.path
        assert each.method in ("GET", "HEAD") or each.operation != "read", each.path


def test_a_fork_needs_the_right_to_read_its_source(served: tuple[World, httpx.Client]) -> None:
    found: dict[str, int] = {}
    for caller in ("admin on lab/", "operator on *"):
        token = {"Authorization": f"Bearer {served[0].tokens[caller]}", "Stream-Forked-From": "/streams/iot/done"}
        found[caller] = served[1].put(f"/streams/lab/fork-{len(found)}", headers=token).status_code
    assert found == {"admin on lab/": 403, "operator on *": 201}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: f"{each.method} {each.path}")
def test_strangers_are_let_in_nowhere(served: tuple[World, httpx.Client], endpoint: object) -> None:
    method, path = endpoint.method, filled(endpoint.path)  # type: ignore[attr-defined]
    if (method, endpoint.path) not in OPEN:  # type: ignore[attr-defined]
        assert {who: status(served, who, method, path) for who in STRANGERS} == dict.fromkeys(STRANGERS, 401)


@pytest.mark.parametrize(
    "endpoint",
    [each for each in ENDPOINTS if each.operation is not None],
    ids=lambda each: f"{each.method} {each.path}",
)
def test_a_caller_may_do_what_his_role_allows_where_he_has_it(
    served: tuple[World, httpx.Client], endpoint: object
) -> None:
    method, path = endpoint.method, filled(endpoint.path)  # type: ignore[attr-defined]
    letter = LETTERS[endpoint.operation]  # type: ignore[attr-defined]
    found = {who: status(served, who, method, path) not in (401, 403) for who in KNOWN}
    assert found == {who: may(who, letter) for who in KNOWN}


@pytest.mark.parametrize(
    "endpoint",
    [each for each in ENDPOINTS if each.operation is not None],
    ids=lambda each: f"{each.method} {each.path}",
)
def test_aliases_and_internal_and_missing_streams_of_others_are_refused_alike(
    served: tuple[World, httpx.Client], endpoint: object
) -> None:
    method, path = endpoint.method, endpoint.path  # type: ignore[attr-defined]
    for scope, name in (("iot", "window"), ("_store", "audit"), ("lab", "nothing"), ("none", "nothing")):
        named = path.replace("{scope}", scope).replace("{name}", name).replace("{name:path}", name)
        assert status(served, "admin on iot/", method, named) == 403, named


def socket_status(served: tuple[World, httpx.Client], caller: str, path: str) -> int:
    """101 if a WebSocket is opened."""
    token = served[0].tokens[caller]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with connect(f"ws://{served[1].base_url.netloc.decode()}{path}", additional_headers=headers):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_a_socket_is_for_those_who_may_read_the_stream(served: tuple[World, httpx.Client]) -> None:
    path = "/v1/streams/iot/sensors/events"
    found = {who: socket_status(served, who, path) for who in (*KNOWN, *STRANGERS)}
    assert found == {who: 401 if who in STRANGERS else 101 if may(who, "r") else 403 for who in found}


def test_results_are_for_those_who_may_read_their_stream(served: tuple[World, httpx.Client]) -> None:
    """Which queries there are, and what comes of one that has not been read yet, is for readers of the store."""
    store = served[0].store
    for name, results in {"found": ("iot/sensors",), "two": ("iot/sensors", "iot/done"), "new": ()}.items():
        store.queries.deploy(name, "…")
        if results:
            Hosted(store, name).prepare(*results)
    for query, allowed, needs in (("found", 200, "r"), ("two", 400, "R"), ("new", 409, "R"), ("none", 404, "R")):
        path = f"/v1/queries/{query}/results"
        found = {who: status(served, who, "GET", path) for who in KNOWN}
        assert found == {who: allowed if may(who, needs) else 403 for who in KNOWN}, query
        path = f"/v1/queries/{query}/state?key=a"
        found = {who: status(served, who, "GET", path) for who in KNOWN}
        assert found == {who: (404 if allowed == 200 else allowed) if may(who, needs) else 403 for who in KNOWN}, query
    path = "/v1/queries/found/results"
    found = {who: socket_status(served, who, path) for who in KNOWN}
    assert found == {who: 101 if may(who, "r") else 403 for who in KNOWN}
