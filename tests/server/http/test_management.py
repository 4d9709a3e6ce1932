"""Management over HTTP: resources, verbs, idempotency keys, pages, and the description of it all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import anabranch as ab
from anabranch.server.http.table import ENDPOINTS
from anabranch.store import Store
from anabranch.wire.verbs import VERBS
from tests.server.http.serving import serving


def test_streams_are_made_listed_and_deleted(http: httpx.Client, store: Store) -> None:
    assert http.post("/v1/scopes", json={"name": "lab", "tags": {"owner": "me"}}).status_code == 201
    wanted = {"name": "lab/temps", "schema": "sensor:string, at:timestamp, value:double", "key": "sensor", "time": "at"}
    answer = http.post("/v1/streams", json=wanted)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/streams/lab/temps"
    made = http.get("/v1/streams/lab/temps").json()
    assert made == answer.json() and made["columns"][1] == {"name": "at", "type": "timestamp"}
    assert store.streams.get("lab/temps").schema.key == "sensor"
    assert http.delete("/v1/scopes/lab").json()["code"] == "scope_not_empty"
    assert http.delete("/v1/streams/lab/temps").status_code == 204
    assert http.get("/v1/streams/lab/temps").json()["code"] == "stream_not_found"
    assert http.delete("/v1/scopes/lab").status_code == 204


def test_lists_have_pages(http: httpx.Client, store: Store) -> None:
    for number in range(7):
        store.streams.create(f"iot/more-{number}")
    names: list[str] = []
    page = http.get("/v1/streams", params={"limit": 3, "pattern": "more-*", "scope": "iot"}).json()
    while True:
        names += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        page = http.get(page["next"]).json()
    assert names == [f"iot/more-{number}" for number in range(7)]
    assert [item["name"] for item in http.get("/v1/scopes").json()["items"]] == ["iot"]


def test_an_idempotency_key_is_a_request_id(http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "once"}
    first = http.post("/v1/streams", json={"name": "iot/new"}, headers=headers)
    again = http.post("/v1/streams", json={"name": "iot/new"}, headers=headers)
    assert (first.status_code, first.json()) == (201, again.json())
    other = http.post("/v1/streams", json={"name": "iot/other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "request_mismatch")
    assert http.post("/v1/call/collect", json={}, headers=headers).json()["code"] == "invalid_argument"


def test_verbs_of_a_stream_and_of_the_store(http: httpx.Client, store: Store) -> None:
    http.post("/v1/streams/iot/raw/events", content=b"x")
    assert http.post("/v1/streams/iot/raw:copy", json={"target": "iot/copied"}).status_code == 200
    assert store.streams.exists("iot/copied")
    assert http.post("/v1/streams/iot/raw:seal").status_code == 200
    assert store.streams.get("iot/raw").sealed
    cut = http.get("/v1/streams/iot/raw/cut").json()["cut"]
    head = http.get("/v1/streams/iot/raw/cut", params={"at": "head"}).json()["cut"]
    distance = http.post("/v1/call/cuts.distance", json={"name": "iot/raw", "start": head, "end": cut}).json()
    assert distance["result"]["events"] == 1
    assert json.loads(http.post("/v1/call/streams.list", json={"scope": "iot"}).text.splitlines()[0])
    assert http.post("/v1/streams/iot/raw:explode").json()["code"] == "no_such_verb"
    assert http.post("/v1/call/os.system", json={}).json()["code"] == "no_such_verb"
    assert http.post("/v1/call/streams.get", json={"nope": 1}).json()["code"] == "invalid_argument"
    assert http.post("/v1/call/streams.get", content=b"[").json()["code"] == "invalid_argument"


def test_the_description_names_every_endpoint_and_verb(http: httpx.Client) -> None:
    paths = http.get("/v1/openapi.json").json()["paths"]
    for endpoint in ENDPOINTS:
        if endpoint.path != "/v1/call/{verb}":
            assert endpoint.method.lower() in paths[endpoint.path.replace(":path", "")], endpoint
    assert {f"/v1/call/{name}" for name in VERBS} <= paths.keys()
    operations = [each["operationId"] for methods in paths.values() for each in methods.values()]
    assert len(operations) == len(set(operations))
    for path, methods in paths.items():
        for method, each in methods.items():
            parameters = [(parameter["name"], parameter["in"]) for parameter in each["parameters"]]
            assert len(parameters) == len(set(parameters)), (method, path)


@pytest.mark.parametrize("path", ["/docs", "/upload"])
def test_a_page_loads_nothing_from_elsewhere(http: httpx.Client, path: str) -> None:
    page = http.get(path)
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.text and "https://" not in page.text and "src=" not in page.text


# What moves bytes to places of this machine, or takes long.
LEFT_OUT = ("archives", "jobs", "job", "backup", "repair", "export_manifest", "check")
# A host of queries answers, and there is none: 503.
WITH_HOST = ("/v1/call/queries.validate", "/v1/call/queries.plan", "/v1/queries:validate", "/v1/queries/{name}/plan")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """What the description of a running server describes."""
    with ab.connect(tmp_path_factory.mktemp("described") / "store", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw")
        with serving(store) as served:
            described = schemathesis.openapi.from_url(f"{served.url}/v1/openapi.json")
            found = [each.ok() for each in described.get_all_operations() if isinstance(each, Ok)]
            left_out = (*(f"/v1/call/{name}" for name in LEFT_OUT), *WITH_HOST)
            yield [each for each in found if not each.path.startswith(left_out)]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_whatever_is_asked_is_answered_as_the_description_says(operations: list[Any], mode: GenerationMode) -> None:
    assert len(operations) > 60
    for operation in operations:

        @settings(max_examples=3, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        @given(operation.as_strategy(mode))
        def ask(case: Any) -> None:
            case.query.pop("follow", None)  # which has no end
            if case.query.get("format") == "sse":
                del case.query["format"]  # nor has this
            case.call_and_validate(checks=CHECKS, timeout=60)

        try:
            ask()
        except Unsatisfiable:  # an operation without parameters can't be asked wrongly
            continue


def test_warnings_of_a_verb_are_in_its_answer(http: httpx.Client) -> None:
    assert http.put("/v1/scopes/iot").status_code < 500
    made = {"name": "iot/out-of-order", "schema": "at:timestamp", "time": "at"}
    assert http.post("/v1/streams", json=made).status_code == 201
    rows = "".join(f'{{"at": "2026-01-01T00:00:{second}Z"}}\n' for second in (30, 10, 40))
    appended = http.post(
        "/v1/streams/iot/out-of-order/events", content=rows, headers={"content-type": "application/x-ndjson"}
    )
    assert appended.status_code == 200
    asked = {"name": "iot/out-of-order", "time": "2026-01-01T00:00:20Z", "by": "event"}
    answer = http.post("/v1/call/cuts.at", json=asked).json()
    assert answer["result"]
    (warning,) = answer["warnings"]
    assert (warning["kind"], warning["stream"]) == ("MisplacedEventsWarning", "iot/out-of-order")
    asked["time"] = "2026-01-01T00:00:05Z"
    assert "warnings" not in http.post("/v1/call/cuts.at", json=asked).json()
