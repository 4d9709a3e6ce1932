"""Opening the store of a broker's process, and the guard in front of it."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.runtime.log_events import STORE_NOT_CLOSED
from anabranch.runtime.settings import Settings
from anabranch.security.guard import Guard, OpenGuard
from anabranch.security.oidc import OidcSettings, OidcTokens
from anabranch.security.quotas import Quota, Quotas
from anabranch.security.store_guard import GuardSettings, StoreGuard
from anabranch.server.broker import Broker
from anabranch.server.config import ServerSettings
from anabranch.store import Store, connect

_QUOTAS: Final = ("calls_per_s", "bytes_per_s", "connections", "followers", "memory_bytes")  # as the fields of Quota


def open_broker(settings: ServerSettings, *, upkeep: bool) -> Broker:
    """Open the store and put its guard in front. `upkeep`: this process compacts, collects and scales in the background;
    one process of a broker does. The caller closes it. Raises what `connect` raises."""
    store = connect(
        settings.store,
        blobs=settings.blobs,
        history=settings.history,
        keys=settings.keys,
        create=settings.create,
        settings=Settings(
            maintenance_s=settings.maintenance_s if upkeep else None,
            scaling_s=settings.scaling_s if upkeep else None,
            # What a consumer that takes nothing holds, and an open transaction: a batch or two.
            read_batch_bytes_max=limits.CONNECTION_BYTES_MAX // 2,
            staged_bytes_max=limits.CONNECTION_BYTES_MAX,
        ),
    )
    store.changes.retry_uncertain = True
    try:
        return Broker(store, _guard(settings, store), settings.upload_lifetime_s)
    except BaseException:
        store.close()
        raise


def close_broker(broker: Broker) -> None:
    """Close guard and store. What does not close in order is logged: all that was acknowledged is durable before."""
    try:
        broker.guard.close()
        broker.store.close()
    except AnabranchError as exc:
        STORE_NOT_CLOSED(error=exc)


def _guard(settings: ServerSettings, store: Store) -> Guard:
    if not settings.authenticates:
        return OpenGuard()
    signed = None
    if settings.jwt_issuer is not None and settings.jwt_audience is not None:
        signed = OidcTokens(
            OidcSettings(settings.jwt_issuer, settings.jwt_audience, jwks=settings.jwks_url), store.runtime
        )
    quotas = Quotas(each=_quota(settings, "principal"), total=_quota(settings, "total"))
    return StoreGuard(store, GuardSettings(quotas=quotas, places=settings.allowed_places), signed=signed)


def _quota(settings: ServerSettings, whose: str) -> Quota:
    return Quota(*(getattr(settings, f"{whose}_{name}") for name in _QUOTAS))
