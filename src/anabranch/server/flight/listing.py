"""GetFlightInfo and ListFlights: describes streams, and how to read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from anabranch.core.byte_stream import is_byte_stream
from anabranch.errors import InvalidArgument
from anabranch.model.columns import ADDED
from anabranch.model.stream import StreamInfo
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.streams.arguments import StreamKey
from anabranch.wire.commands import pack
from anabranch.wire.v1 import anabranch_pb2 as v1


def described(broker: Broker, principal: Principal, stream: StreamKey) -> Any:
    """One stream. Raises StreamNotFound, PermissionDenied."""
    info = allowed_stream(broker, principal, stream, "read", "describe")
    return _info(broker, info)


def listed(broker: Broker, principal: Principal, criteria: bytes) -> Iterator[Any]:
    """The streams that the caller may read; of one scope, if `criteria` names it."""
    try:
        scope = criteria.decode() or None
    except UnicodeDecodeError as exc:
        raise InvalidArgument(f"expected criteria as the name of a scope, or empty; got {criteria!r:.100}") from exc
    found = [
        info for info in broker.store.streams.list(scope) if broker.guard.allows(principal, "read", str(info.name))
    ]
    return (_info(broker, info) for info in found)


def _info(broker: Broker, info: StreamInfo) -> Any:
    name, schema = str(info.name), info.schema
    description = v1.StreamDescription(
        id=info.id,
        name=name,
        columns=schema.to_bytes(),
        key=schema.key,
        time=schema.time,
        raw=schema.raw,
        schema_version=info.schema_version,
        sealed=info.sealed,
        byte_stream=is_byte_stream(info),
        event_bytes_max=broker.store.runtime.settings.event_bytes_max,
    )
    return flight.FlightInfo(
        pa.schema([*schema.columns, *ADDED]),
        flight.FlightDescriptor.for_path(*name.split("/")),
        [flight.FlightEndpoint(pack(v1.ReadCommand(stream=name)), [])],
        app_metadata=description.SerializeToString(),
    )
