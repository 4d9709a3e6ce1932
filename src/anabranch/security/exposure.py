"""Secure by default: a broker that others can reach needs TLS and authentication."""

from __future__ import annotations

import ipaddress

from anabranch.errors import InvalidArgument


def is_loopback(host: str) -> bool:
    """True if only this machine reaches what listens on `host`. Other names than `localhost` may be anywhere."""
    bare = host.strip("[]")
    if ":" in bare:  # only an IPv6 address has a zone; elsewhere `%` may be an escape, which hides another name
        bare = bare.partition("%")[0]
    if bare.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def require_safe(host: str, *, tls: bool, authentication: bool, insecure: bool) -> None:
    """Raise InvalidArgument for a broker that listens on anything but loopback without TLS and authentication, unless
    `insecure`."""
    if insecure or is_loopback(host) or (tls and authentication):
        return
    missing = {
        "TLS (--tls-certificate and --tls-key, or --dev-tls)": tls,
        "authentication (--auth tokens)": authentication,
    }
    raise InvalidArgument(
        f"others can reach a broker on '{host}', so it needs {' and '.join(each for each, given in missing.items() if not given)}. "
        "Or listen on 127.0.0.1, or pass --insecure if the network is trusted"
    )
