"""The URL of an object store: its bucket, prefix and connection options. Credentials are no part of it.

    s3://bucket/prefix?endpoint=https://host:9000&region=eu-central-1&ca=/etc/ssl/private-ca.pem
    az://container/prefix?account=name        abfss://container@name.dfs.core.windows.net/prefix
    gs://bucket/prefix

`endpoint` names a server other than the cloud's own; `ca` is a PEM file with the certificates of a private authority,
trusted in addition to the system's; `allow_http=true` permits an unencrypted `http://` endpoint; `virtual_hosted=true`
(S3) puts the bucket into the host name. Keys and tokens come from the environment, as for the clouds' own tools
(`AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT_KEY`, `GOOGLE_APPLICATION_CREDENTIALS`, …).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from anabranch.core.redact import shown_address
from anabranch.core.url_options import url_options
from anabranch.errors import InvalidArgument

_KINDS: Final = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), "az"),
    "gs": "gs",
}
_OPTIONS: Final = {
    "s3": ("endpoint", "region", "ca", "allow_http", "virtual_hosted"),
    "az": ("endpoint", "account", "ca", "allow_http"),
    "gs": ("endpoint", "ca", "allow_http"),
}
_NAME: Final = re.compile(r"[a-z_]{1,32}\Z")
_BOOLS: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class ObjectStoreAddress:
    """A parsed URL. `kind` is s3, az or gs; `bucket` a bucket or container; `prefix` has no slash at either end."""

    kind: str
    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    ca: str | None = None
    allow_http: bool = False
    virtual_hosted: bool = False

    @property
    def shown(self) -> str:
        """The URL for messages and for other engines: scheme, bucket and prefix."""
        host = f"{self.bucket}@{self.account}.dfs.core.windows.net" if self.account else self.bucket
        scheme = "abfss" if self.account else self.kind
        return f"{scheme}://{host}/{self.prefix}".rstrip("/")


def is_remote(text: str) -> bool:
    """True if the text is the URL of an object store."""
    scheme, colon, _ = text.partition("://")
    return bool(colon) and scheme.lower() in _KINDS


def parse(text: str) -> ObjectStoreAddress:
    """Parse a URL. Raises InvalidArgument, whose message repeats neither values nor anything before an `@`."""
    parts = _split_url(text)
    if parts is None or parts.scheme not in _KINDS:
        raise InvalidArgument(
            f"{shown_address(text)} is not an address of an object store: expected one such as s3://bucket/prefix"
        )
    kind = _KINDS[parts.scheme]
    bucket, at, host = parts.netloc.partition("@")
    if (at and kind != "az") or ":" in bucket:
        raise InvalidArgument(
            f"the {parts.scheme}:// URL holds a user or password; credentials come from the environment"
        )
    if "#" in text:  # the parser would drop what follows
        raise InvalidArgument(f"the {parts.scheme}:// URL has a '#', which no bucket, prefix or option here may hold")
    if not bucket:
        raise InvalidArgument(f"'{parts.scheme}://' needs a bucket: {parts.scheme}://bucket/prefix")
    options = dict(url_options(parts.query))
    for name in options:
        if name not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind])
            # A value without a name may be a credential in the wrong place, so it is not quoted.
            shown = f"'{name}'" if _NAME.match(name) and f"{name}=" in parts.query else "one of them"
            raise InvalidArgument(f"{shown} is not an option of {parts.scheme}:// URLs; the options are {known}")
    endpoint = options.get("endpoint")
    allow_http = _parse_bool(options, "allow_http")
    if endpoint is not None:
        server = _split_url(endpoint)
        if server is None or server.scheme not in ("http", "https") or not server.hostname or "@" in server.netloc:
            raise InvalidArgument("the endpoint must have the form https://host:port")
        if server.scheme == "http" and not allow_http:
            raise InvalidArgument("the endpoint uses plain http, which is not encrypted; allow_http=true permits that")
    account = host.partition(".")[0] if at else options.get("account")
    return ObjectStoreAddress(
        kind,
        bucket,
        parts.path.strip("/"),
        endpoint=endpoint,
        region=options.get("region"),
        account=account,
        ca=options.get("ca"),
        allow_http=allow_http,
        virtual_hosted=_parse_bool(options, "virtual_hosted"),
    )


def _split_url(text: str) -> SplitResult | None:
    """The parts of a URL, None if the text is not one. The parser's own errors are not used: they quote their input."""
    try:
        parts = urlsplit(text)
        _ = parts.port, parts.hostname
    except ValueError:
        return None
    return parts


def _parse_bool(options: dict[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in _BOOLS:
        raise InvalidArgument(f"expected {name} to be true or false, got another value")
    return _BOOLS[text]
