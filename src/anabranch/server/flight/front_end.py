"""Arrow Flight as one of a broker's front ends."""

from __future__ import annotations

import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.server.broker import Broker
from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.flight.counting import CallCounting
from anabranch.server.flight.service import FlightService


class FlightFrontEnd:
    """A front end in threads of pyarrow's, one a call."""

    name = "flight"

    def __init__(
        self, broker: Broker, settings: ServerSettings, counters: Counters, access_log: AccessLog | None = None
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._counting = CallCounting(counters, access_log)
        self._service: FlightService | None = None

    def start(self) -> str:
        settings = self._settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        certificates = None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            certificates = [(settings.tls_certificate.read_bytes(), settings.tls_key.read_bytes())]
        scheme = "grpc" if certificates is None else "grpc+tls"
        try:
            self._service = FlightService(
                self._broker,
                f"{scheme}://{host}:{settings.flight_port}",
                tls_certificates=certificates,
                counting=self._counting,
                client_ca=None if settings.tls_client_ca is None else settings.tls_client_ca.read_bytes(),
            )
        except (OSError, pa.ArrowException) as exc:  # gRPC's own reason is on stderr
            raise InvalidArgument(
                f"can't serve Flight on {host}, port {settings.flight_port}: the port is taken, or the host is not this machine"
            ) from exc
        return f"anabranch{'' if certificates is None else '+tls'}://{host}:{self._service.port}"

    def failed(self) -> str | None:
        return None  # gRPC serves as long as the process lives

    def drain(self, seconds: float) -> bool:
        return self._service is None or self._service.drain(seconds)

    def stop(self) -> None:
        if self._service is not None:
            self._service.close()
