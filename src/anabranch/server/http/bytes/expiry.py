"""When an unfinished upload is removed. Until it is finished its stream is ephemeral, held in the upload's name up to that
time, so upkeep removes it as it removes any stream that nothing holds any more."""

from __future__ import annotations

from typing import Final

from anabranch.catalog.port import Writing
from anabranch.catalog.state.ephemeral import Holder
from anabranch.model.ids import Micros, StreamId
from anabranch.server.broker import Broker
from anabranch.store.facade import Store
from anabranch.streams.directory.find import need_info
from anabranch.streams.lifecycle.holders import holders_of, put_holders
from anabranch.streams.requests import Result

_UPLOAD: Final = "upload"  # the holder's token


def expires_at(store: Store, stream: StreamId) -> Micros | None:
    """When the upload expires; None if it never does. Raises StreamNotFound."""
    return next((each.until for each in store.ephemeral.holders(stream) if each.token == _UPLOAD), None)


def prolong(broker: Broker, stream: StreamId, expires: Micros | None) -> Micros | None:
    """Restart the lifetime if it has not begun, or is half over; returns when the upload expires. Raises StreamNotFound."""
    store, lifetime_s = broker.store, broker.upload_lifetime_s
    if lifetime_s is None:
        return expires
    lifetime = round(lifetime_s * 1_000_000)
    if expires is not None and expires - store.runtime.clock.now() > lifetime // 2:
        return expires

    def change(txn: Writing, now: Micros) -> Result:
        info = need_info(txn, stream)
        others = (each for each in holders_of(txn, info.id) or () if each.token != _UPLOAD)
        until = Micros(now + lifetime)
        put_holders(txn, info.id, (*others, Holder(_UPLOAD, "an unfinished upload", now, until)))
        return {"until": until}

    found = store.changes.apply(f"prolong upload {stream:016x}", None, change, on=stream)
    return Micros(int(str(found["until"])))
