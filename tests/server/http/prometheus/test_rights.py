"""Who may query by PromQL, and what hostile queries may do."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.promql.parser import parse_promql
from tests.server.access.credentials import KNOWN, ROLES, STRANGERS, World, world
from tests.server.http.prometheus.data import BEGIN_S
from tests.server.http.serving import Serving, serving

_PATHS = ("/query", "/query_range", "/series", "/labels", "/label/host/values", "/metadata")
_ASKED = {"query": "gauge", "match[]": "gauge", "start": "0", "end": "10", "step": "5", "time": "10"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, httpx.Client]]:
    schema = pa.schema([("host", pa.string()), ("at", pa.timestamp("us", "UTC")), ("value", pa.float64())])
    with (
        world(tmp_path_factory.mktemp("promql")) as made,
        serving(made.store, made.guard) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        for scope in ("iot", "lab"):
            made.store.streams.create(f"{scope}/gauge", schema=schema, time="at")
            with made.store.writer(f"{scope}/gauge") as writer:
                writer.write({"host": scope, "at": 10_000_000, "value": 1.5})
        yield made, client


@pytest.mark.parametrize("caller", KNOWN)
def test_a_caller_sees_the_scopes_that_he_may_read(served: tuple[World, httpx.Client], caller: str) -> None:
    made, client = served
    role, _, on = caller.partition(" on ")
    bearer = {"Authorization": f"Bearer {made.tokens[caller]}"}
    basic = {"Authorization": "Basic " + b64encode(f"me:{made.tokens[caller]}".encode()).decode()}
    for scope, headers in (("iot", bearer), ("lab", basic)):
        for path in _PATHS:
            answer = client.get(f"/prometheus/{scope}/api/v1{path}", params=_ASKED, headers=headers)
            allowed = "r" in ROLES[role] and on in ("*", f"{scope}/")
            assert answer.status_code == (200 if allowed else 403), (scope, path, answer.text)
            assert answer.json()["status"] == ("success" if answer.status_code == 200 else "error")


def test_strangers_learn_nothing(served: tuple[World, httpx.Client]) -> None:
    made, client = served
    for stranger in STRANGERS:
        headers = {"Authorization": f"Bearer {made.tokens[stranger]}"} if made.tokens[stranger] else {}
        for path in (*_PATHS, "/status/buildinfo"):
            assert client.get(f"/prometheus/iot/api/v1{path}", params=_ASKED, headers=headers).status_code == 401


def test_a_scope_that_there_is_not_is_not_found(broker: Serving, client: httpx.Client) -> None:
    answer = client.get(f"{broker.url}/prometheus/none/api/v1/query", params={"query": "cpu"})
    assert answer.status_code == 404 and answer.json()["errorType"] == "not_found"


@pytest.mark.parametrize(
    "text", ["(" * 50_000, "-" * 50_000 + "1", "+".join(["1"] * 50_000), "abs(" * 500 + "cpu" + ")" * 500]
)
def test_a_query_that_is_nested_too_deep_is_refused_before_it_is_parsed(
    broker: Serving, client: httpx.Client, text: str
) -> None:
    answer = client.post(f"{broker.url}/prometheus/db/api/v1/query", data={"query": text})
    assert answer.status_code == 400 and answer.json()["errorType"] == "bad_data"


def test_the_longest_query_that_is_parsed_does_not_overflow_the_stack() -> None:
    for text in ("-" * (limits.PROMQL_TOKENS_MAX - 1) + "cpu", "(" * limits.PROMQL_TOKENS_MAX):
        with pytest.raises(InvalidSql, match=r"nested deeper|unclosed|unexpected end"):
            parse_promql(text)


def test_text_of_a_query_never_becomes_sql(broker: Serving, client: httpx.Client) -> None:
    for text in ("a' OR '1'='1", "'; DROP TABLE cpu; --", '\\"', "ü"):
        for operator in ("=", "=~"):
            asked = {"query": f'cpu{{host{operator}"{text}"}}', "time": str(BEGIN_S + 600)}
            found = client.post(f"{broker.url}/prometheus/db/api/v1/query", data=asked).json()
            assert found["data"]["result"] == [], (text, found)


def test_a_query_that_needs_too_much_is_refused(
    broker: Serving, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"query": "cpu", "start": str(BEGIN_S), "end": str(BEGIN_S + 600), "step": "1"}
    url = f"{broker.url}/prometheus/db/api/v1/query_range"
    for limit in ("PROMQL_SAMPLES_MAX", "PROMQL_CELLS_MAX", "PROMQL_RESULT_POINTS_MAX"):
        with monkeypatch.context() as patched:
            patched.setattr(limits, limit, 100)
            answer = client.get(url, params=asked)
            assert answer.status_code == 422 and "100" in answer.json()["error"], answer.text
    assert client.get(url, params={**asked, "timeout": "0.001"}).json()["errorType"] == "timeout"


def test_names_of_metrics_may_be_in_a_column(broker: Serving, client: httpx.Client) -> None:
    schema = pa.schema([("__name__", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    store = broker.broker.store
    store.scopes.create("held")
    store.streams.create("held/all", schema=schema, time="at")
    with store.writer("held/all") as writer:
        for number, name in enumerate(("up", "down", None)):
            writer.write({"__name__": name, "at": 10_000_000, "n": number})
    url = f"{broker.url}/prometheus/held/api/v1"
    assert client.get(f"{url}/label/__name__/values").json()["data"] == ["down", "up"]
    found = client.get(f"{url}/query", params={"query": "down", "time": "11"}).json()["data"]["result"]
    assert found == [{"metric": {"__name__": "down"}, "value": [11, "1"]}]
