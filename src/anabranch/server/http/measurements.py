"""The streams that the caller of a request may read, as measurements of InfluxQL and of PromQL."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.errors import InvalidName, InvalidSql, NotFound
from anabranch.model.names import StreamName
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.isolated import IsolatedQueries
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.http.front import HttpCall


class ReadableStreams:
    """A `Database` of InfluxQL. Its methods wait, so they are for a thread."""

    def __init__(self, broker: Broker, queries: IsolatedQueries, principal: Principal) -> None:
        self._broker = broker
        self._queries = queries
        self._principal = principal

    def databases(self) -> list[str]:
        """The scopes that the caller may read, in the order of their names."""
        guard = self._broker.guard
        scopes = [scope.name for scope in self._broker.store.scopes.list()]
        return [scope for scope in scopes if guard.allows(self._principal, "read", f"{scope}/")]

    def check_database(self, name: str) -> None:
        """Raise InvalidSql if there is no such scope and the caller may know that."""
        try:
            self._broker.store.scopes.get(name)
        except (NotFound, InvalidName):
            if self._broker.guard.allows(self._principal, "read", f"{name}/"):
                raise InvalidSql(f"database not found: {name}") from None

    def measurements(self, database: str) -> Sequence[Measurement]:
        """The streams of a scope, in the order of their names."""
        store, guard = self._broker.store, self._broker.guard
        try:
            found = [info for info in store.streams.list(database) if not info.name.internal]
        except (NotFound, InvalidName):
            return []
        return [
            Measurement.of(info)
            for info in sorted(found, key=lambda info: info.name)
            if guard.allows(self._principal, "read", str(info.name))
        ]

    def measurement(self, database: str, name: str) -> Measurement | None:
        """A stream, or None. Raises PermissionDenied, whether there is such a stream or not."""
        store, guard = self._broker.store, self._broker.guard
        try:
            full = StreamName.parse(f"{database}/{name}")
            store.notifications.freshen(full)
            info = store.streams.get(full)
        except InvalidName:
            return None
        except NotFound:
            guard.authorize(self._principal, "read", str(full), verb="query")
            return None
        guard.authorize(self._principal, "read", str(info.name), verb="query")
        return Measurement.of(info)

    def run(self, sql: str, measurement: Measurement) -> list[pa.RecordBatch]:
        """The result of a query over one stream."""
        return list(self._queries.run(sql, {measurement.stream: measurement.id}))


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
