"""The page of HTTP paths is complete: each endpoint is on it once, with its parameters."""

from __future__ import annotations

import pytest

from anabranch.server.edge.health import PATHS
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.table import ENDPOINTS
from docs import http_page


@pytest.fixture(scope="module")
def rows() -> dict[str, str]:
    rows = [row.split("`", 2) for row in http_page.page().splitlines() if row.startswith("| `")]
    assert len({request for _, request, _ in rows}) == len(rows)
    return {request: rest for _, request, rest in rows}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_every_endpoint_is_on_the_page(rows: dict[str, str], endpoint: Endpoint) -> None:
    row = rows[f"{endpoint.method} {endpoint.path.replace(':path}', '}')}"]
    assert endpoint.summary in row
    assert all(f"`{parameter['name']}`" in row for parameter in endpoint.parameters)


def test_the_paths_of_health_are_on_the_page(rows: dict[str, str]) -> None:
    assert {f"GET {path}" for path in PATHS} <= set(rows)
