"""The endpoints of deployed queries."""

from __future__ import annotations

from typing import Final

from anabranch.server.http.described import READ, READ_ANSWERS
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.queries.results import results, results_socket

_QUERIES: Final = "/v1/queries"
_QUERY: Final = f"{_QUERIES}/{{name}}"

QUERIES: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *(
            "GET",
            f"{_QUERY}/results",
            results,
            None,
            "verb",
            "query_results",
            "Read the results of a query, or follow them",
        ),
        parameters=READ,
        answers=READ_ANSWERS,
        socket=results_socket,
    ),
    Endpoint(
        *("GET", f"{_QUERY}/results/{{result:path}}", results, None, "verb", "query_result", "One of several results"),
        parameters=READ,
        answers=READ_ANSWERS,
        socket=results_socket,
    ),
)
