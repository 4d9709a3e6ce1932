"""The streams of one scope that the caller of a request may read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.query.influxql.measurement import Measurement
from anabranch.server.http.front import HttpCall
from anabranch.server.http.measurements import ReadableStreams


class ScopeStreams:
    """A `MetricStreams`. Its methods wait, so they are for a thread."""

    def __init__(self, call: HttpCall) -> None:
        """The scope comes from the path."""
        self._call = call
        self._scope = call.request.path_params["scope"]
        self._streams = ReadableStreams(call.front.broker, call.front.queries.isolated, call.principal)

    def measurements(self) -> Sequence[Measurement]:
        """The streams that the caller may read. Raises PermissionDenied if there is none and he may not read the scope,
        NotFound if there is no such scope."""
        found = self._streams.measurements(self._scope)
        if not found:
            broker = self._call.front.broker
            broker.guard.authorize(self._call.principal, "read", f"{self._scope[:200]}/", verb="query")
            broker.store.scopes.get(self._scope)
        return found

    def run(self, sql: str, measurement: Measurement) -> list[pa.RecordBatch]:
        """The result of a query over one stream."""
        return self._streams.run(sql, measurement)
