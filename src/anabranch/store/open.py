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
from anabranch.catalog.state.store import DATA_KEY, newest
from anabranch.core.closeable import closed_on_error
from anabranch.errors import CorruptCatalog, InvalidArgument, KeyMissing, StoreNotFound
from anabranch.errors.optional import optional
from anabranch.runtime.folders import make_folder, path_text
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.runtime.tracing import Tracing
from anabranch.runtime.version import VERSION
from anabranch.store.addresses import (
    MEMORY,
    POSTGRES,
    StoreAddresses,
    folder_of,
    is_database,
    is_file,
    is_folder,
    size_of,
)
from anabranch.store.facade import Store
from anabranch.store.open_postgres import open_postgres
from anabranch.store.storage import open_tiers

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from anabranch.log.keyring import Keyring
    from anabranch.runtime.sealing import KeyService


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
) -> Store:
    """Open a store. With `create` it is created if it does not exist; a store in memory always is.

    `url` is the address of the catalog: a folder (`./river`, `file:///data/river`) that any number of processes may
    share, `postgresql://user@host/database` with any option of libpq (`?sslmode=verify-full`) and `schema` (default
    `anabranch`), or `memory://` for a store that lasts as long as the object. `blobs` is the address of the bytes: a
    folder, `memory://`, or an object store (`s3://bucket/prefix`, `az://…`, `gs://…`; for their options see
    `anabranch.blobs.address`). A PostgreSQL catalog needs it; the others have a default. `history` puts compacted files
    elsewhere, for example `blobs` on a local disk and `history` in a bucket. Always open a store with the same
    addresses.

    `keys` encrypts the events of a new store, and opens an encrypted one: `file:/path`, `env:NAME` (see
    `anabranch.runtime.keys`), or a `KeyService`. Raises KeyMissing if the store is encrypted under a key that was not
    given, WrongKey if it is encrypted under another key; InvalidArgument if the store holds unencrypted events.

    With a `tracer_provider` of OpenTelemetry the store records spans; see `anabranch.runtime.tracing`. For the global
    provider, pass `opentelemetry.trace.get_tracer_provider()`. Without one, nothing is traced.

    A store belongs to this process. In a forked process everything except its `close` raises Forked; so does `connect`
    there for a folder whose store was open, and for any bucket if one was in use.

    Raises StoreNotFound if it does not exist and is not to be created, ReadOnlyStore, StoreUnavailable, CorruptCatalog,
    FormatTooNew, InvalidArgument, MissingExtra.
    """
    text = path_text("the address of a store", url)
    blobs = None if blobs is None else path_text("blobs", blobs)
    history = None if history is None else path_text("history", history)
    runtime = _paced(runtime or Runtime(settings=settings or Settings()), blobs)
    if tracer_provider is not None:
        runtime = replace(runtime, tracing=Tracing(tracer_provider, runtime.clock, version=VERSION))
    service = _service(keys, runtime)  # first, so that unavailable keys leave nothing behind
    addresses = StoreAddresses.of(text, blobs, history, keys)
    if text.startswith(POSTGRES):
        if not blobs:
            raise InvalidArgument("a PostgreSQL catalog stores no blobs: pass their address as blobs=")
        bytes_at = open_tiers(blobs, history, runtime, create=create)
        with closed_on_error(bytes_at):
            catalog, shown = open_postgres(text, runtime, create=create)
        return _assemble(catalog, bytes_at, runtime, service, url=shown, addresses=addresses)
    if text == MEMORY:
        bytes_at = open_tiers(blobs or text, history, runtime, create=True)
        return _assemble(SqliteCatalog(None, runtime), bytes_at, runtime, service, url=text, addresses=addresses)
    folder = folder_of(text)
    if is_file(folder):
        raise InvalidArgument(f"a store is a folder; {folder} is a file")
    known = size_of(folder / CATALOG_FILE) >= 0
    if not create and not known:
        if not blobs and is_folder(folder / "blobs"):
            _refuse_orphans(LocalBlobs(folder / "blobs", runtime), folder / CATALOG_FILE)
        raise StoreNotFound(str(folder))
    make_folder(folder, shared=runtime.settings.shared_files, sync_existing=not known)
    bytes_at = open_tiers(blobs or folder / "blobs", history, runtime, create=True)
    with closed_on_error(bytes_at):
        _refuse_orphans(bytes_at, folder / CATALOG_FILE)
        catalog = SqliteCatalog(folder, runtime)
    return _assemble(catalog, bytes_at, runtime, service, url=str(folder), addresses=addresses)


def _service(keys: str | KeyService | None, runtime: Runtime) -> KeyService | None:
    if keys is None:
        return None
    if not isinstance(keys, str) and not all(hasattr(keys, each) for each in ("current", "wrap", "unwrap")):
        raise InvalidArgument(f"expected keys as file:/path, env:NAME or a KeyService, got {type(keys).__name__}")
    with optional("encryption at rest", "encryption"):
        from anabranch.runtime.keys import open_keys
    return open_keys(keys, runtime.ids) if isinstance(keys, str) else keys


def _assemble(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    service: KeyService | None,
    *,
    url: str,
    addresses: StoreAddresses,
) -> Store:
    with closed_on_error(catalog, blobs):
        keyring = _unlock(catalog, runtime, service)
    if keyring is not None:
        from anabranch.blobs.envelope import Envelope

        runtime = replace(runtime, sealer=Envelope(keyring, runtime.ids))
    return Store(catalog, blobs, runtime, url=url, keyring=keyring, addresses=addresses)


def _unlock(catalog: Catalog, runtime: Runtime, service: KeyService | None) -> Keyring | None:
    """The data keys of a store that is or will be encrypted; None for an unencrypted one."""
    if service is not None:
        from anabranch.log.keyring import open_keyring

        return open_keyring(catalog, service, runtime)
    with catalog.reading() as snapshot:
        known = snapshot.states(DATA_KEY)
    if known:
        raise KeyMissing(newest(row for _, row in known).master)
    return None


def _refuse_orphans(blobs: Blobs, catalog: Path) -> None:
    """Raise CorruptCatalog if there are blobs but no catalog that could refer to them: a new catalog would treat them
    as garbage."""
    if is_database(catalog):
        return
    orphan = next(iter(blobs.list()), None)
    # Another process may have created both meanwhile, the catalog first.
    if orphan is not None and not is_database(catalog):
        raise CorruptCatalog(
            f"the catalog {catalog} is damaged or missing, though there are blobs: {orphan.key} … "
            "(anabranch rebuild creates one from the last manifest; an interrupted restore has to be repeated)"
        )


def _paced(runtime: Runtime, place: str | None) -> Runtime:
    """Fill in the limits on commits and bytes in flight that the settings leave open: enough to hide an object store's
    latency."""
    settings = runtime.settings
    if place is None or not is_remote(place):
        return runtime
    in_flight = settings.commits_in_flight_max or limits.REMOTE_COMMITS_IN_FLIGHT_MAX
    pending = settings.pending_bytes_max or limits.REMOTE_PENDING_BYTES_MAX
    paced = replace(settings, commits_in_flight_max=in_flight, pending_bytes_max=pending, verify_ahead=False)
    return replace(runtime, settings=paced)
