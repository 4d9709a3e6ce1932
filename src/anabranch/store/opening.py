"""`connect`: the only place where the parts of a store are put together."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.blobs.address import is_remote
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.sqlite.adapter import FILE as CATALOG_FILE
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import (
    CorruptCatalog,
    InvalidArgument,
    KeyMissing,
    MissingExtra,
    StoreNotFound,
)
from anabranch.log import data_keys
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store.facade import Store
from anabranch.store.places import (
    MEMORY,
    POSTGRES,
    Places,
    folder_of,
    is_database,
    make_folder,
    open_postgres,
    open_tiers,
)

if TYPE_CHECKING:
    from anabranch.log.keyring import Keyring
    from anabranch.runtime.sealing import KeyService


def connect(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    keys: str | KeyService | None = None,
    create: bool = True,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
) -> Store:
    """Open a store, creating it where there is none.

    `url` says where the catalog is: a folder (`./river`, `file:///data/river`) that any number of processes may share,
    `postgresql://user@host/database` with any option of libpq (`?sslmode=verify-full`) and `schema` (default
    `anabranch`), or `memory://` for a store that lives as long as the object. `blobs` says where the bytes are: a folder,
    `memory://`, or an object store (`s3://bucket/prefix`, `az://…`, `gs://…`; `anabranch.blobs.address` tells their
    options); a PostgreSQL catalog needs it, the others have a place of their own. `history` puts compacted files
    somewhere else, say `blobs` on a local disk and `history` in a bucket. A store is always opened with the same places.

    `keys` encrypts the events of a new store, and opens one that is encrypted: `file:/path`, `env:NAME` (see
    `anabranch.runtime.keys`), or a `KeyService`. Raises KeyMissing where the store is encrypted under a key that was not
    given, WrongKey where it was another; InvalidArgument where the store holds events in the clear.

    A store belongs to this process: in one that is forked from it, all but its `close` raises Forked; so does `connect` there
    for a folder whose store was open, and for any bucket where one was in use.

    Raises StoreNotFound where there is none and `create` is False, ReadOnlyStore, StoreUnavailable, CorruptCatalog,
    FormatTooNew, InvalidArgument, MissingExtra.
    """
    runtime = _paced(runtime or Runtime(settings=settings or Settings()), blobs)
    service = _service(keys, runtime)  # first, so that keys which can't be had leave nothing behind
    text = os.fspath(url)
    if text.startswith(POSTGRES):
        if blobs is None:
            raise InvalidArgument("a PostgreSQL catalog holds no blobs: say where they are by blobs=")
        bytes_at = open_tiers(blobs, history, runtime, create=create)
        catalog, shown = open_postgres(text, runtime, create=create)
        return _placed(_assemble(catalog, bytes_at, runtime, service, url=shown), Places.of(text, blobs, history, keys))
    if text == MEMORY:
        bytes_at = open_tiers(blobs or text, history, runtime, create=create)
        return _placed(
            _assemble(SqliteCatalog(None, runtime), bytes_at, runtime, service, url=text),
            Places.of(text, blobs, history, keys),
        )
    folder = folder_of(text)
    if not create and not (folder / CATALOG_FILE).exists():
        if blobs is None and (folder / "blobs").is_dir():
            _refuse_orphans(LocalBlobs(folder / "blobs", runtime), folder / CATALOG_FILE)
        raise StoreNotFound(str(folder))
    make_folder(folder)
    bytes_at = open_tiers(blobs or folder / "blobs", history, runtime, create=True)
    _refuse_orphans(bytes_at, folder / CATALOG_FILE)
    return _placed(
        _assemble(SqliteCatalog(folder, runtime), bytes_at, runtime, service, url=str(folder)),
        Places.of(text, blobs, history, keys),
    )


def _service(keys: str | KeyService | None, runtime: Runtime) -> KeyService | None:
    if keys is None:
        return None
    try:
        from anabranch.runtime.keys import open_keys
    except ImportError as exc:
        raise MissingExtra("encryption at rest", "encryption") from exc
    return open_keys(keys, runtime.ids) if isinstance(keys, str) else keys


def _assemble(catalog: Catalog, blobs: Blobs, runtime: Runtime, service: KeyService | None, *, url: str) -> Store:
    try:
        keyring = _unlock(catalog, runtime, service)
    except BaseException:
        catalog.close()
        blobs.close()
        raise
    if keyring is None:
        return Store(catalog, blobs, runtime, url=url)
    from anabranch.blobs.envelope import Envelope

    return Store(catalog, blobs, replace(runtime, sealer=Envelope(keyring, runtime.ids)), url=url, keyring=keyring)


def _unlock(catalog: Catalog, runtime: Runtime, service: KeyService | None) -> Keyring | None:
    """The data keys of a store that is encrypted or is to be; None for one in the clear."""
    if service is not None:
        from anabranch.log.keyring import open_keyring

        return open_keyring(catalog, service, runtime)
    with catalog.reading() as snapshot:
        known = snapshot.pieces(data_keys.KIND)
    if known:
        raise KeyMissing(data_keys.newest(map(data_keys.from_piece, known)).master)
    return None


def _placed(store: Store, places: Places) -> Store:
    store.places = places
    return store


def _refuse_orphans(blobs: Blobs, catalog: Path) -> None:
    """Raise CorruptCatalog where there are blobs, but no catalog that could know of them: a new one would take them for
    garbage."""
    if is_database(catalog):
        return
    orphan = next(iter(blobs.list()), None)
    # Another process may have made both meanwhile, the catalog first.
    if orphan is not None and not is_database(catalog):
        raise CorruptCatalog(
            f"the catalog {catalog} is damaged or missing, though there are blobs: {orphan.key} … "
            "(anabranch rebuild makes one anew from the last manifest; a restore that was cut off is begun again)"
        )


def _paced(runtime: Runtime, place: str | os.PathLike[str] | None) -> Runtime:
    """What the settings leave open of how much may be on its way: enough to hide an object store's latency."""
    settings = runtime.settings
    if place is None or not is_remote(os.fspath(place)):
        return runtime
    in_flight = settings.commits_in_flight_max or limits.REMOTE_COMMITS_IN_FLIGHT_MAX
    pending = settings.pending_bytes_max or limits.REMOTE_PENDING_BYTES_MAX
    paced = replace(settings, commits_in_flight_max=in_flight, pending_bytes_max=pending, verify_ahead=False)
    return replace(runtime, settings=paced)
