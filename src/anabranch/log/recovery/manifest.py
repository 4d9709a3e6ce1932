"""Manifests: a whole catalog as blobs, from which it can be rebuilt. `docs/explanation/formats.md` is the contract.

A manifest is written in parts, so no catalog is too large for it. Its index is written last; without the index, the
manifest does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.blobs import keys, layout
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.store import is_store_id
from anabranch.catalog.tables import BY_NAME, TABLES, CatalogTable, Value
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.core.json_text import parse_count
from anabranch.errors import BlobMissing, CorruptBlob, CorruptStore, FormatTooNew, InvalidArgument
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.recovery.identity import store_id
from anabranch.log.recovery.manifest_rows import check_row
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

FORMAT: Final = 1
_TIME_MAX: Final = 1 << 62  # µs; leaves room for the ends of leases, which are computed from the horizon
_TYPES: Final = {"int": pa.int64(), "bool": pa.bool_(), "text": pa.string(), "bytes": pa.binary()}
_SCHEMAS: Final = {
    table.name: pa.schema([pa.field(c.name, _TYPES[c.kind], c.nullable) for c in table.columns]) for table in TABLES
}


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """One blob of a manifest: rows of one table. `checksum` is xxh3-64 (signed) of the whole blob."""

    key: str
    table: str
    rows: int
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A catalog as of one moment at or after `taken_at`. `folder` is the prefix of its blobs' keys, `horizon` the
    collector's horizon in it. `store` is the id of the store; None in a manifest of an older release."""

    folder: str
    taken_at: Micros
    horizon: Micros
    parts: tuple[ManifestPart, ...]
    store: str | None = None

    def rows(self, table: str) -> int:
        """The number of rows of a table in the manifest."""
        return sum(part.rows for part in self.parts if part.table == table)


# writing


def write(catalog: Catalog, target: Blobs, runtime: Runtime, *, progress: ProgressCallback = no_progress) -> Manifest:
    """Copies the catalog, as of one snapshot, into a new manifest in `target`.

    Its parts have about `limits.MANIFEST_PART_BYTES` each. Without its index (see `finish`) it does not count yet.
    `progress` is called with rows.
    """
    store = store_id(catalog, runtime)  # before the snapshot, so that the snapshot holds it
    # Later than all existing manifests, whatever the clock says: the newest one counts.
    taken_at = Micros(max(runtime.clock.now(), (newest_at(target) or 0) + 1))
    folder = keys.manifest_folder(taken_at, token(runtime.ids))
    parts: list[ManifestPart] = []
    done = 0
    with catalog.reading() as snapshot:
        horizon = snapshot.horizon()
        for table in TABLES:
            for rows in _parts(snapshot, table):
                parts.append(_put(target, f"{folder}{len(parts):08}.arrow", table, rows))
                done += len(rows)
                progress("catalog", done, 0)
    return Manifest(folder, taken_at, horizon, tuple(parts), store)


def _parts(snapshot: Reading, table: CatalogTable) -> Iterator[list[tuple[Value, ...]]]:
    """The rows of a table in runs of bounded size."""
    rows: list[tuple[Value, ...]] = []
    weight = 0
    after: Sequence[Value] | None = None
    while page := snapshot.export(table.name, after):
        after = page[-1][: table.key]
        rows += page
        weight += sum(_weight(row) for row in page)
        if weight >= limits.MANIFEST_PART_BYTES:
            yield rows
            rows, weight = [], 0
    if rows:
        yield rows


def _weight(row: tuple[Value, ...]) -> int:
    return sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)


def _put(target: Blobs, key: str, table: CatalogTable, rows: list[tuple[Value, ...]]) -> ManifestPart:
    schema = _SCHEMAS[table.name]
    columns = [pa.array(values, field.type) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
    message = codec.encode(pa.record_batch(columns, schema=schema))
    index = {"manifest": FORMAT, "table": table.name, "schemas": [schema.serialize().to_pybytes().hex()]}
    part = {"rows": len(rows), "schema": 0, "checksum": checksum(message)}
    framed = layout.frame(index, [part], [message])
    whole = b"".join(bytes(memoryview(chunk)) for chunk in framed.chunks)
    target.put(key, [whole])
    return ManifestPart(key, table.name, len(rows), len(whole), checksum(whole))


def finish(manifest: Manifest, target: Blobs) -> None:
    """Writes the manifest's index: from now on it counts."""
    index = {
        "manifest": FORMAT,
        "taken_at": manifest.taken_at,
        "horizon": manifest.horizon,
        "store": manifest.store,
        "pieces": [[part.key, part.table, part.rows, part.size, part.checksum] for part in manifest.parts],
    }
    target.put(keys.manifest_index(manifest.folder), layout.frame(index, [], []).chunks)


def export(catalog: Catalog, blobs: Blobs, runtime: Runtime, *, progress: ProgressCallback = no_progress) -> Manifest:
    """Writes a whole manifest among the store's own blobs, and removes all but the newest `limits.MANIFESTS_KEPT`. A
    lease protects the blobs that the manifest names until the manifest counts; from then on the collector takes account
    of the manifest. Raises
    LeaseExpired, and InvalidArgument if the blobs belong to another store."""
    refuse_other_store(catalog, blobs, runtime)
    with HeldLease(catalog, runtime, "manifest", "export", initial_us=limits.BACKUP_LEASE_US) as hold:
        manifest = write(catalog, blobs, runtime, progress=progress)
        hold.confirm()
        finish(manifest, blobs)
    prune(blobs, runtime, keep=limits.MANIFESTS_KEPT)
    return manifest


# reading


def folders(blobs: Blobs) -> list[str]:
    """The folders of the manifests that count, newest first."""
    return [folder for folder, found in _folders(blobs).items() if keys.manifest_index(folder) in found][::-1]


def unfinished(blobs: Blobs) -> list[str]:
    """The folders of the manifests without an index: under way or abandoned."""
    return [folder for folder, found in _folders(blobs).items() if keys.manifest_index(folder) not in found]


def newest_at(blobs: Blobs) -> Micros | None:
    """The time when the newest manifest that counts was begun."""
    found = folders(blobs)
    return keys.manifest_begun_at(found[0]) if found else None


def _folders(blobs: Blobs) -> dict[str, list[str]]:
    """All manifests, unfinished ones too, oldest first, with the keys of their blobs."""
    found: dict[str, list[str]] = {}
    for info in blobs.list(keys.MANIFESTS):
        folder = info.key.rpartition("/")[0] + "/"
        if keys.manifest_begun_at(folder) is not None:
            found.setdefault(folder, []).append(info.key)
    return found


def read(blobs: Blobs, folder: str) -> Manifest:
    """The manifest in a folder. Raises BlobMissing, CorruptBlob, FormatTooNew."""
    key = keys.manifest_index(folder)
    index = layout.read_index(key, blobs.get(key))
    _check_format(key, index)
    try:
        parts = tuple(_part_of(folder, entry) for entry in index["pieces"])
        taken_at, horizon = (Micros(parse_count(index[name])) for name in ("taken_at", "horizon"))
        if max(taken_at, horizon) > _TIME_MAX:
            raise ValueError("its time is too late: leases counted from it would overflow")
        store = index.get("store")
        if store is not None and not is_store_id(store):
            raise ValueError("expected the id of a store as 32 hex digits")
    except (KeyError, TypeError, ValueError) as exc:
        raise CorruptBlob(key, f"it is not the index of a manifest ({exc!r})") from exc
    return Manifest(folder, taken_at, horizon, parts, store)


def stores_of(blobs: Blobs) -> Iterator[str]:
    """The store's id of each manifest in `blobs`, newest manifest first. Manifests whose index can't be read are left
    out."""
    for folder in folders(blobs):
        with suppress(CorruptStore):
            if (store := read(blobs, folder).store) is not None:
                yield store


def refuse_other_store(catalog: Catalog, blobs: Blobs, runtime: Runtime) -> None:
    """Raises InvalidArgument if the newest manifest in `blobs` is of another store. Each of the two stores would
    collect the blobs of the other."""
    newest = next(stores_of(blobs), None)
    if newest is not None and newest != (own := store_id(catalog, runtime)):
        raise InvalidArgument(
            f"the blobs of this store, {own}, are also those of the store {newest}; nothing was changed. Give each store a "
            f"separate place for its blobs; if the other store no longer exists, remove its manifests ({keys.MANIFESTS})"
        )


def _part_of(folder: str, entry: Sequence[Any]) -> ManifestPart:
    """A part as listed in a manifest's index, which may come from anyone. Raises CorruptBlob, TypeError, ValueError."""
    key, table, rows, size, digest = entry
    if table not in BY_NAME:
        raise ValueError(f"unknown table {table!r:.100}")
    if isinstance(digest, bool) or not isinstance(digest, int):
        raise ValueError("expected a checksum as a number")
    return ManifestPart(keys.manifest_part(folder, key), table, parse_count(rows), parse_count(size), digest)


def newest(blobs: Blobs, *, store: str | None = None) -> tuple[Manifest | None, dict[str, str]]:
    """The first of `intact`, or None; and the errors of newer ones, by folder."""
    damaged: dict[str, str] = {}
    return next(intact(blobs, damaged, store=store), None), damaged


def intact(blobs: Blobs, damaged: dict[str, str], *, store: str | None = None) -> Iterator[Manifest]:
    """The manifests whose blobs all exist and are intact, and each of whose rows a catalog could hold, newest first.
    Adds the errors of the others to `damaged`, by folder. With `store`, only manifests of that store count, and those
    that name no store."""
    for folder in folders(blobs):
        try:
            manifest = read(blobs, folder)
            if store is not None and manifest.store not in (None, store):
                damaged[folder] = f"it is of another store, {manifest.store}"
                continue
            for part in manifest.parts:
                _decode(part, _fetch(blobs, part))
        except CorruptStore as exc:
            damaged[folder] = str(exc)
        else:
            yield manifest


def batches(blobs: Blobs, manifest: Manifest, table: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, part by part in the order of its key. Raises BlobMissing, CorruptBlob."""
    for part in manifest.parts:
        if part.table == table:
            yield _decode(part, _fetch(blobs, part))


def rows(blobs: Blobs, manifest: Manifest, table: str) -> Iterator[dict[str, Any]]:
    """Like `batches`, row by row."""
    for batch in batches(blobs, manifest, table):
        yield from batch


def values(table: str, batch: Sequence[Mapping[str, Value]]) -> list[tuple[Value, ...]]:
    """Rows as `catalog.port.Writing.load` takes them."""
    columns = [column.name for column in BY_NAME[table].columns if not column.derived]
    return [tuple(row[name] for name in columns) for row in batch]


def _fetch(blobs: Blobs, part: ManifestPart) -> pa.Buffer:
    size = blobs.size(part.key)
    if size is None:
        raise BlobMissing(part.key)
    if size != part.size:  # a truncated file must not be mapped
        raise CorruptBlob(part.key, f"it holds {size} bytes, not {part.size}")
    data = blobs.get(part.key)
    if checksum(data) != part.checksum:
        raise CorruptBlob(part.key, "its checksum does not match its bytes")
    return data


def _decode(part: ManifestPart, data: pa.Buffer) -> list[dict[str, Any]]:
    index = layout.read_index(part.key, data, verify=False)
    _check_format(part.key, index)
    try:
        (message_part,) = index["parts"]
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(index["schemas"][message_part["schema"]])))
        wanted = _SCHEMAS[part.table]
        if [schema.field(name).type for name in wanted.names] != wanted.types:
            raise ValueError(f"its columns are not those of the table {part.table}")
    except (pa.ArrowException, LookupError, OSError, TypeError, ValueError) as exc:
        raise CorruptBlob(part.key, f"its index does not describe a table ({exc!r})") from exc
    message = data.slice(message_part["at"], message_part["length"])
    batch = codec.decode(message, schema, key=part.key)
    if index.get("table") != part.table or batch.num_rows != part.rows:
        raise CorruptBlob(part.key, "its rows differ from those in the manifest's index")
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        check_row(part.key, part.table, row)
    return rows


def _check_format(key: str, index: Mapping[str, Any]) -> None:
    found = index.get("manifest")
    if not isinstance(found, int) or found < 1:
        raise CorruptBlob(key, "it is not part of a manifest")
    if found > FORMAT:
        raise FormatTooNew(f"the manifest {key}", found, FORMAT)


# removing


def prune(blobs: Blobs, runtime: Runtime, *, keep: int) -> None:
    """Removes all manifests but the newest `keep`, and unfinished ones that were begun more than
    `limits.MANIFEST_BEGUN_US` ago. Deletes a manifest's index first, so that no manifest that counts ever lacks a
    part."""
    given_up = runtime.clock.now() - limits.MANIFEST_BEGUN_US
    kept = set(folders(blobs)[:keep])
    for folder, found in _folders(blobs).items():
        index = keys.manifest_index(folder)
        begun_at = keys.manifest_begun_at(folder) or 0
        if folder in kept or (index not in found and begun_at >= given_up):
            continue
        for key in sorted(found, key=lambda key: key != index):
            blobs.delete(key)


# the blobs that a manifest names


def referenced_blobs(blobs: Blobs, manifest: Manifest, *, unused: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of the blobs that a manifest names, in key order; with `unused`, also of those without extents.
    Attached files are left out: they stay where they lie."""
    for row in rows(blobs, manifest, "blobs"):
        if (unused or row["checksum"] is not None) and not keys.is_attached(row["key"]):
            yield row


def join_by_key(
    rows: Iterator[dict[str, Any]], listed: Iterator[BlobInfo]
) -> Iterator[tuple[dict[str, Any] | None, BlobInfo | None]]:
    """Joins rows of blobs and a listing, both in key order, by key; None on the side that lacks the key."""
    row, info = next(rows, None), next(listed, None)
    while row is not None or info is not None:
        if info is None or (row is not None and row["key"] < info.key):
            yield row, None
            row = next(rows, None)
        elif row is None or info.key < row["key"]:
            yield None, info
            info = next(listed, None)
        else:
            yield row, info
            row, info = next(rows, None), next(listed, None)


def list_blobs(blobs: Blobs) -> Iterator[BlobInfo]:
    """The blobs of streams in key order."""
    for prefix in keys.PREFIXES:
        for info in blobs.list(prefix):
            if keys.begun_at(info.key) is not None:
                yield info


def verify(row: Mapping[str, Any], data: pa.Buffer) -> None:
    """Raises CorruptBlob if a blob's bytes are not those that were written."""
    key = row["key"]
    if data.size != row["size"]:
        raise CorruptBlob(key, f"it holds {data.size} bytes, not {row['size']}")
    if row["encoding"] == "arrow":
        layout.read_index(key, data)
    elif checksum(data) != row["checksum"]:
        raise CorruptBlob(key, "its bytes do not match the checksum of its extents")
