"""Addresses of brokers: `anabranch://host:port`, `anabranch+tls://host:port`, or several hosts with commas between."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from anabranch.errors import InvalidArgument

PLAIN: Final = "anabranch://"
TLS: Final = "anabranch+tls://"
SCHEMES: Final = (PLAIN, TLS)
PORT: Final = 7410

_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.\-]+)(?::(?P<port>[0-9]{1,5}))?\Z")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One or several brokers of one store: `places` are `host:port`, tried in this order."""

    places: tuple[str, ...]
    tls: bool

    @classmethod
    def parse(cls, text: str) -> BrokerAddress:
        """Parse the text form. Raises InvalidArgument."""
        scheme = next((each for each in SCHEMES if text.startswith(each)), None)
        if scheme is None:
            raise InvalidArgument("the address of a broker begins with anabranch:// or anabranch+tls://")
        hosts = text.removeprefix(scheme).removesuffix("/")
        return cls(tuple(_place(each) for each in hosts.split(",")), scheme == TLS)

    @property
    def locations(self) -> tuple[str, ...]:
        """The places as Flight names them."""
        return tuple(f"grpc{'+tls' if self.tls else ''}://{each}" for each in self.places)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the places, without ports."""
        return tuple(each.rpartition(":")[0] for each in self.places)

    def __str__(self) -> str:
        return f"{TLS if self.tls else PLAIN}{','.join(self.places)}"


def is_broker(text: str) -> bool:
    """True for an address of brokers, well formed or not."""
    return text.startswith(SCHEMES)


def _place(text: str) -> str:
    match = _HOST.match(text)
    if match is None:  # not quoted: it may contain a password
        raise InvalidArgument(
            "the address of a broker is anabranch://host:port, with commas between several hosts; a token is passed as token="
        )
    port = int(match["port"] or PORT)
    if not 0 < port < 1 << 16:
        raise InvalidArgument(f"{port} is not a port: expected 1 to 65535")
    return f"{match['host']}:{port}"
