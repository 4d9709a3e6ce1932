"""Who may query and write by InfluxDB's API, and how its clients say who they are."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import httpx
import pytest

from tests.server.access.credentials import KNOWN, ROLES, STRANGERS, World, world
from tests.server.http.serving import serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, httpx.Client]]:
    with (
        world(tmp_path_factory.mktemp("influx")) as made,
        serving(made.store, made.guard) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        yield made, client


def allowed(answer: httpx.Response) -> bool:
    """Whether the caller had the rights. A refusal is an error as InfluxDB says it."""
    if answer.status_code in (401, 403):
        assert answer.json().keys() == {"error"}
        return False
    return "permission" not in answer.text


CONTINUOUS = "CREATE CONTINUOUS QUERY q ON iot BEGIN SELECT mean(value) INTO means FROM done GROUP BY time(1m) END"
# What a call needs, on which scope (None: on all of them). `{new}` is the name of a stream that is not there.
CASES = [
    ("r", "iot", "/query", {"db": "iot", "q": "SELECT value FROM done"}, ""),
    ("r", "iot", "/query", {"db": "iot", "q": "SELECT value FROM nothing"}, ""),
    ("r", "lab", "/query", {"db": "lab", "q": "SELECT value FROM secret"}, ""),
    ("r", "lab", "/query", {"db": "iot", "q": 'SELECT value FROM "window"'}, ""),
    (
        "r",
        "lab",
        "/query",
        {"db": "iot", "q": "SELECT value FROM (SELECT value FROM (SELECT value FROM lab..secret))"},
        "",
    ),
    ("w", "iot", "/write", {"db": "iot"}, "done value=1"),
    ("w", "lab", "/write", {"db": "lab"}, "secret value=1"),
    ("w", "lab", "/write", {"db": "iot"}, "window value=1"),
    ("w", None, "/write", {"db": "none"}, "m value=1"),
    ("wc", "iot", "/write", {"db": "iot"}, "{new} value=1"),
    ("rw", "iot", "/query", {"db": "iot", "q": "SELECT mean(value) INTO means FROM done"}, ""),
    ("c", None, "/query", {"q": "CREATE DATABASE made"}, ""),
    ("a", None, "/query", {"db": "iot", "q": CONTINUOUS}, ""),
    ("a", None, "/query", {"db": "iot", "q": "DROP CONTINUOUS QUERY q ON iot"}, ""),
    ("r", None, "/query", {"q": "SHOW CONTINUOUS QUERIES"}, ""),
    ("m", "iot", "/query", {"db": "iot", "q": "DROP MEASUREMENT {new}"}, ""),
    ("m", None, "/query", {"q": "DROP DATABASE made"}, ""),
]


@pytest.mark.parametrize("caller", KNOWN)
def test_a_caller_may_do_what_his_role_allows_where_he_has_it(served: tuple[World, httpx.Client], caller: str) -> None:
    made, client = served
    headers = {"Authorization": f"Token someone:{made.tokens[caller]}"}
    new = "new-" + "".join(letter for letter in caller if letter.isalnum())
    role, _, on = caller.partition(" on ")
    for needs, scope, path, parameters, body in CASES:
        parameters = {name: value.replace("{new}", f'"{new}"') for name, value in parameters.items()}
        answer = client.post(path, params=parameters, content=body.replace("{new}", new), headers=headers)
        expected = set(needs) <= set(ROLES[role]) and on in ("*", f"{scope}/")
        assert allowed(answer) == expected, (parameters, body, answer.text)


@pytest.mark.parametrize("caller", KNOWN)
def test_what_there_is_is_shown_to_those_who_may_read_it(served: tuple[World, httpx.Client], caller: str) -> None:
    made, client = served
    headers = {"Authorization": f"Bearer {made.tokens[caller]}"}
    shown = client.get("/query", params={"q": "SHOW DATABASES"}, headers=headers).json()
    names = {name for series in shown["results"][0]["series"] for (name,) in series.get("values", [])}
    role, _, on = caller.partition(" on ")
    reads = "r" in ROLES[role]
    assert names >= {scope for scope in ("iot", "lab") if reads and on in ("*", f"{scope}/")}
    assert not names & {scope for scope in ("iot", "lab") if not reads or on not in ("*", f"{scope}/")}


def test_a_token_is_the_password_of_any_user(served: tuple[World, httpx.Client]) -> None:
    made, client = served
    token = made.tokens["reader on *"]
    query = {"q": "SHOW DATABASES"}
    basic = b64encode(f"me:{token}".encode()).decode()
    for headers, parameters in (
        ({"Authorization": f"Basic {basic}"}, {}),
        ({"Authorization": f"Token me:{token}"}, {}),
        ({"Authorization": f"Bearer {token}"}, {}),
        ({}, {"u": "me", "p": token}),
    ):
        assert client.get("/query", params={**query, **parameters}, headers=headers).status_code == 200
    for header in ("Basic !!!", "Basic bWU6eA==", "Token me:x", "Digest x"):
        assert client.get("/query", params=query, headers={"Authorization": header}).status_code == 401


def test_strangers_learn_that_the_broker_is_there_and_no_more(served: tuple[World, httpx.Client]) -> None:
    made, client = served
    for stranger in STRANGERS:
        headers = {"Authorization": f"Bearer {made.tokens[stranger]}"} if made.tokens[stranger] else {}
        assert client.get("/ping", headers=headers).status_code == 204
        for path in ("/query", "/write"):
            assert client.post(path, params={"db": "iot", "q": "SHOW DATABASES"}, headers=headers).status_code == 401
