"""`anabranch.connect`: opens a store wherever it is, itself or through a broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.remote.address import is_broker
from anabranch.runtime.folders import path_text
from anabranch.store import open as embedded

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from anabranch.runtime.ports import Runtime
    from anabranch.runtime.sealing import KeyService
    from anabranch.runtime.settings import Settings
    from anabranch.store.facade import Store


def connect(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    keys: str | KeyService | None = None,
    create: bool = False,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    tracer_provider: TracerProvider | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> Store:
    """Open a store: the one in a folder or database, see `anabranch.store.open.connect` for its arguments; or, with an
    address `anabranch://host:port` or `anabranch+tls://host:port`, the one that a broker serves (`anabranch serve`).
    Several brokers of one store are named with commas: `anabranch://a:7410,b:7410`; the first that answers is used.

    With a broker's address the result is a `RemoteStore`. It has the methods of a Store, so it is typed as one; those
    that need the store's catalog and files raise NotRemote. `token` says who calls, by default the environment variable
    ANABRANCH_TOKEN. With TLS, `ca` is a PEM file with the certificate of the CA to trust instead of the machine's;
    `certificate` and `private_key` are the client's own. Without TLS a token is sent to this machine alone, unless
    `insecure` or ANABRANCH_INSECURE=1 says that the network is trusted. `settings` and `runtime` apply, the other
    arguments don't.

    No broker needs to answer yet when this returns. Raises InvalidArgument, MissingExtra, and for a store that is opened
    here what `anabranch.store.open.connect` raises.
    """
    text = path_text("the address of a store", url)
    if not is_broker(text):
        given: dict[str, object] = {"token": token, "ca": ca, "certificate": certificate, "private_key": private_key}
        given["insecure"] = insecure or None
        _reject(given, "is only for a broker's address, anabranch://host:port")
        return embedded.connect(
            url,
            blobs=blobs,
            history=history,
            keys=keys,
            create=create,
            settings=settings,
            runtime=runtime,
            tracer_provider=tracer_provider,
        )
    useless: dict[str, object] = {"blobs": blobs, "history": history, "keys": keys, "tracer_provider": tracer_provider}
    _reject(useless, "can't be used with a broker, which opens the store itself")
    with optional("connecting to a broker", "remote"):
        from anabranch.remote.connect import connect_to_broker
    remote = connect_to_broker(
        text,
        token=token,
        ca=ca,
        certificate=certificate,
        private_key=private_key,
        settings=settings,
        runtime=runtime,
        insecure=insecure,
    )
    return cast("Store", remote)  # the same methods; a test compares them


def _reject(given: dict[str, object], why: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(f"{name}= {why}")
