"""Which pages may use the broker from a browser."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from anabranch.server.http.problem import HttpRefusal

_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_EXPOSED: Final = (
    *("Anabranch-From", "Anabranch-Head", "Anabranch-Next", "Link", "Retry-After"),
    *("Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Location", "Repr-Digest"),
    *("Tus-Checksum-Algorithm", "Tus-Extension", "Tus-Max-Size", "Tus-Resumable", "Tus-Version"),
    *("Upload-Complete", "Upload-Expires", "Upload-Length", "Upload-Offset"),
    *("Stream-Closed", "Stream-Cursor", "Stream-Expires-At", "Stream-Next-Offset", "Stream-SSE-Data-Encoding"),
    *("Stream-TTL", "Stream-Up-To-Date", "Producer-Epoch", "Producer-Expected-Seq", "Producer-Received-Seq"),
    "Producer-Seq",
)
_PREFLIGHT_S: Final = 3600
_PORT: Final = re.compile(r":\d+\Z")


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The application, which pages of these origins may use; `*` stands for any. Who calls is said by a token, never by a
    cookie, so a page can do no more than the user who gave it a token."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=_METHODS,
        allow_headers=["*"],
        expose_headers=_EXPOSED,
        max_age=_PREFLIGHT_S,
    )


def check_origin(headers: Headers, origins: Sequence[str]) -> None:
    """Refuse what a page of another origin asks, unless it is one of `origins`. For WebSockets and for requests that HTML
    forms can make, no browser asks first, so a page could write to a broker without access control that its visitor can
    reach. Programs name no origin. Raises HttpRefusal."""
    origin = headers.get("origin")
    if origin is None or "*" in origins or origin in origins:
        return
    # Behind a proxy the host may be another one than in the page's address; browsers themselves report whether the origin is the same.
    if headers.get("sec-fetch-site") == "same-origin" or origin.partition("://")[2] == headers.get("host"):
        return
    raise HttpRefusal(403, "origin_not_allowed", f"pages of {origin:.200} may not call this broker: see cors_origins")


def check_host(headers: Headers, allowed: Sequence[str]) -> None:
    """Refuse a request that calls the broker by a name that isn't its own. Needed without access control: a page may have
    its own name lead to the visitor's machine (DNS rebinding), and is then, for the browser, a page of the broker.
    Addresses, `localhost` and names without a dot can't be such a page's; other names have to be `allowed` (`*`: all).
    Raises HttpRefusal."""
    name = _PORT.sub("", headers.get("host", "")).lower().rstrip(".")
    if "." not in name or name.endswith(".localhost") or "*" in allowed or name in allowed:
        return
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        raise HttpRefusal(
            421, "host_not_allowed", f"this broker does not serve the host {name:.200}: see allowed_hosts"
        ) from None
