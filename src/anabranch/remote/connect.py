"""Opens the store that a broker serves."""

from __future__ import annotations

import os
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.errors.system import unavailable
from anabranch.remote.address import BrokerAddress
from anabranch.remote.connection import Credentials
from anabranch.remote.store import RemoteStore
from anabranch.runtime.bounded_files import read_bounded
from anabranch.runtime.folders import path_text
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.security.exposure import is_loopback

TOKEN_VARIABLE: Final = "ANABRANCH_TOKEN"

INSECURE_VARIABLE: Final = "ANABRANCH_INSECURE"

File = str | os.PathLike[str]


def connect_to_broker(
    url: str,
    *,
    token: str | None = None,
    ca: File | None = None,
    certificate: File | None = None,
    private_key: File | None = None,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    insecure: bool = False,
) -> RemoteStore:
    """See `anabranch.remote.open.connect`."""
    address = BrokerAddress.parse(url)
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable()):
        raise InvalidArgument("expected a token of printable ASCII characters")
    if token is not None and not (insecure or os.environ.get(INSECURE_VARIABLE) == "1"):
        _require_secret(address)
    if not address.tls and (ca or certificate or private_key):
        raise InvalidArgument("certificates require TLS: connect to anabranch+tls://host:port")
    if (certificate is None) != (private_key is None):
        raise InvalidArgument("pass both certificate= and private_key=, or neither")
    credentials = Credentials(
        token, _read("ca", ca), _read("certificate", certificate), _read("private_key", private_key)
    )
    return RemoteStore(address, credentials, runtime or Runtime(settings=settings or Settings()))


def _require_secret(address: BrokerAddress) -> None:
    """Raises InvalidArgument where others may read along."""
    open_to = [] if address.tls else [host for host in address.hosts if not is_loopback(host)]
    if open_to:
        raise InvalidArgument(
            f"the token would cross the network to '{open_to[0]}' in plain text: use anabranch+tls://, or, where the "
            f"network is trusted, insecure=True or {INSECURE_VARIABLE}=1"
        )


def _read(name: str, file: File | None) -> bytes | None:
    if file is None:
        return None
    file = path_text(name, file)
    try:
        return read_bounded(file, limits.KEY_FILE_BYTES_MAX)
    except OSError as exc:
        raise unavailable(exc, f"{file} can't be read") from exc
