"""Which way a job takes to a store that brokers serve: through them, or natively to the store's catalog and blobs.

A broker does not reveal where its store is: a caller who may read a stream through it need not know. So the native way needs
option `nativePath`, which says that every machine of the job reaches the store there. The driver checks that it does
itself, and that it is the brokers' store.
"""

from __future__ import annotations

from anabranch.core.redact import shown_address
from anabranch.errors import AnabranchError, InvalidArgument, PermissionDenied
from anabranch.runtime.log_events import SPARK_PATH
from anabranch.spark.stores import BrokerAccess, StorePlaces, open_store
from anabranch.store import StoreAddresses

__all__ = ["chosen_places"]


def chosen_places(places: StorePlaces) -> StorePlaces:
    """The places to use, on the driver; of a store that brokers serve, after a look at both ways, and with one record in the
    log. Raises what makes the native way impossible if option `access` demands it."""
    if not isinstance(places, BrokerAccess):
        return places
    native, broker = places.native, places.through_brokers()
    if places.access == "broker":
        return _logged(broker, places, "option 'access' says so")
    if native is None:
        return _logged(broker, places, "option 'nativePath' does not say where the store is")
    try:
        _check_same(native, broker)
    except AnabranchError as exc:
        if places.access == "native":
            raise
        return _logged(broker, places, str(exc))
    reason = "option 'access' says so" if places.access == "native" else "the driver reaches the brokers' store there"
    return _logged(native, places, reason)


def _check_same(native: StoreAddresses, broker: BrokerAccess) -> None:
    """Raise what keeps this process from the native store, and InvalidArgument if the brokers serve another one."""
    own = open_store(native).id
    try:
        served = open_store(broker).id
    except PermissionDenied as exc:
        raise PermissionDenied(
            f"whether 'nativePath' is the brokers' store is unknown: its id needs the right to read the store: {exc}"
        ) from exc
    if own != served:
        raise InvalidArgument(
            f"'nativePath' is another store than that of the brokers: {shown_address(native.url)} has the id {own}, "
            f"and {broker.url} serves {served}"
        )


def _logged(taken: StorePlaces, places: BrokerAccess, reason: str) -> StorePlaces:
    way = "through its brokers" if isinstance(taken, BrokerAccess) else "natively"
    SPARK_PATH(store=places.url, way=way, reason=reason)
    return taken
