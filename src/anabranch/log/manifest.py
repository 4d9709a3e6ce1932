"""Manifests: a whole catalog as blobs, from which another can be made. `docs/FORMATS.md` is the contract.

A manifest is written part by part, so that no catalog is too large for it, and counts once its index is there, which
comes last. Whoever finds no index finds no manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.blobs import keys, layout
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.tables import BY_NAME, TABLES, Table, Value
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.errors import BlobMissing, CorruptBlob, CorruptStore, FormatTooNew
from anabranch.log.lease import Hold
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

FORMAT: Final = 1
_TYPES: Final = {"int": pa.int64(), "bool": pa.bool_(), "text": pa.string(), "bytes": pa.binary()}
_SCHEMAS: Final = {
    table.name: pa.schema([pa.field(c.name, _TYPES[c.kind], c.nullable) for c in table.columns]) for table in TABLES
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One blob of a manifest: rows of one table. `checksum` is xxh3-64 (signed) of the whole blob."""

    key: str
    table: str
    rows: int
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A catalog as of one moment at or after `taken_at`. `folder` is the prefix of its blobs' keys, `horizon` the
    collector's horizon in it."""

    folder: str
    taken_at: Micros
    horizon: Micros
    pieces: tuple[Piece, ...]

    def rows(self, table: str) -> int:
        """How many rows of a table it holds."""
        return sum(piece.rows for piece in self.pieces if piece.table == table)


# writing


def write(catalog: Catalog, target: Blobs, runtime: Runtime, *, progress: Watch = silent) -> Manifest:
    """Copy the catalog, as of one snapshot, into a new manifest in `target`, parts of about
    `limits.MANIFEST_PART_BYTES` each. Without its index (see `finish`) it does not count yet. `progress` hears of rows.
    """
    # Later than all there are, whatever the clock says: the last one counts.
    taken_at = Micros(max(runtime.clock.now(), (newest_at(target) or 0) + 1))
    folder = keys.manifest_folder(taken_at, token(runtime.ids))
    pieces: list[Piece] = []
    done = 0
    with catalog.reading() as snapshot:
        horizon = snapshot.horizon()
        for table in TABLES:
            for rows in _parts(snapshot, table):
                pieces.append(_put(target, f"{folder}{len(pieces):08}.arrow", table, rows))
                done += len(rows)
                progress("catalog", done, 0)
    return Manifest(folder, taken_at, horizon, tuple(pieces))


def _parts(snapshot: Reading, table: Table) -> Iterator[list[tuple[Value, ...]]]:
    """The rows of a table in runs of bounded weight."""
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


def _put(target: Blobs, key: str, table: Table, rows: list[tuple[Value, ...]]) -> Piece:
    schema = _SCHEMAS[table.name]
    columns = [pa.array(values, field.type) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
    message = codec.encode(pa.record_batch(columns, schema=schema))
    index = {"manifest": FORMAT, "table": table.name, "schemas": [schema.serialize().to_pybytes().hex()]}
    part = {"rows": len(rows), "schema": 0, "checksum": checksum(message)}
    framed = layout.frame(index, [part], [message])
    whole = b"".join(bytes(memoryview(chunk)) for chunk in framed.chunks)
    target.put(key, [whole])
    return Piece(key, table.name, len(rows), len(whole), checksum(whole))


def finish(manifest: Manifest, target: Blobs) -> None:
    """Write the manifest's index: from now on it counts."""
    index = {
        "manifest": FORMAT,
        "taken_at": manifest.taken_at,
        "horizon": manifest.horizon,
        "pieces": [[piece.key, piece.table, piece.rows, piece.size, piece.checksum] for piece in manifest.pieces],
    }
    target.put(keys.manifest_index(manifest.folder), layout.frame(index, [], []).chunks)


def export(catalog: Catalog, blobs: Blobs, runtime: Runtime, *, progress: Watch = silent) -> Manifest:
    """Write a whole manifest among the store's own blobs, and remove all but the newest `limits.MANIFESTS_KEPT`. A lease
    keeps the blobs that it names until it counts; from then on the collector looks at it. Raises LeaseExpired."""
    with Hold(catalog, runtime, "manifest", "export", first_us=limits.BACKUP_LEASE_US) as hold:
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
    """The folders of those that do not count yet, or never will."""
    return [folder for folder, found in _folders(blobs).items() if keys.manifest_index(folder) not in found]


def newest_at(blobs: Blobs) -> Micros | None:
    """When the newest manifest that counts was begun."""
    found = folders(blobs)
    return keys.manifest_begun_at(found[0]) if found else None


def _folders(blobs: Blobs) -> dict[str, list[str]]:
    """All manifests, begun or whole, oldest first, with the keys of their blobs."""
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
        pieces = tuple(Piece(*piece) for piece in index["pieces"])
        return Manifest(folder, Micros(index["taken_at"]), Micros(index["horizon"]), pieces)
    except (KeyError, TypeError) as exc:
        raise CorruptBlob(key, "it is no index of a manifest") from exc


def newest(blobs: Blobs) -> tuple[Manifest | None, dict[str, str]]:
    """The newest manifest all of whose blobs are there and sound, or None, and what is wrong with those after it."""
    damaged: dict[str, str] = {}
    for folder in folders(blobs):
        try:
            manifest = read(blobs, folder)
            for piece in manifest.pieces:
                _fetch(blobs, piece)
        except CorruptStore as exc:
            damaged[folder] = str(exc)
        else:
            return manifest, damaged
    return None, damaged


def batches(blobs: Blobs, manifest: Manifest, table: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, part by part in the order of its key. Raises BlobMissing, CorruptBlob."""
    for piece in manifest.pieces:
        if piece.table == table:
            yield _decode(piece, _fetch(blobs, piece))


def rows(blobs: Blobs, manifest: Manifest, table: str) -> Iterator[dict[str, Any]]:
    """The same, row by row."""
    for batch in batches(blobs, manifest, table):
        yield from batch


def values(table: str, batch: Sequence[Mapping[str, Value]]) -> list[tuple[Value, ...]]:
    """Rows as `catalog.port.Writing.load` takes them."""
    columns = [column.name for column in BY_NAME[table].columns if not column.derived]
    return [tuple(row[name] for name in columns) for row in batch]


def _fetch(blobs: Blobs, piece: Piece) -> pa.Buffer:
    size = blobs.size(piece.key)
    if size is None:
        raise BlobMissing(piece.key)
    if size != piece.size:  # a file that was cut short must not be mapped
        raise CorruptBlob(piece.key, f"it holds {size} bytes, not {piece.size}")
    data = blobs.get(piece.key)
    if checksum(data) != piece.checksum:
        raise CorruptBlob(piece.key, "its checksum does not match its bytes")
    return data


def _decode(piece: Piece, data: pa.Buffer) -> list[dict[str, Any]]:
    index = layout.read_index(piece.key, data, verify=False)
    _check_format(piece.key, index)
    (part,) = index["parts"]
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(index["schemas"][part["schema"]])))
    batch = codec.decode(data.slice(part["at"], part["length"]), schema, key=piece.key)
    if index["table"] != piece.table or batch.num_rows != piece.rows:
        raise CorruptBlob(piece.key, "it holds other rows than the manifest's index says")
    return batch.to_pylist()  # type: ignore[no-any-return]


def _check_format(key: str, index: Mapping[str, Any]) -> None:
    found = index.get("manifest")
    if not isinstance(found, int):
        raise CorruptBlob(key, "it is no part of a manifest")
    if found > FORMAT:
        raise FormatTooNew(f"the manifest {key}", found, FORMAT)


# removing


def prune(blobs: Blobs, runtime: Runtime, *, keep: int) -> None:
    """Remove all manifests but the newest `keep`, and those that were begun `limits.MANIFEST_BEGUN_US` ago and never
    finished. The index goes first, so that no manifest ever lacks a part."""
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


def named(blobs: Blobs, manifest: Manifest, *, unused: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of the blobs that a manifest names, in key order; `unused`: also of those that no extent lies in. Attached
    files are left out: they lie somewhere else, and stay there."""
    for row in rows(blobs, manifest, "blobs"):
        if (unused or row["checksum"] is not None) and not keys.is_attached(row["key"]):
            yield row


def beside(
    rows: Iterator[dict[str, Any]], listed: Iterator[BlobInfo]
) -> Iterator[tuple[dict[str, Any] | None, BlobInfo | None]]:
    """Rows of blobs and a listing, both in key order, joined by key; None where the other lacks it."""
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


def listed(blobs: Blobs) -> Iterator[BlobInfo]:
    """The blobs of streams in key order."""
    for prefix in keys.PREFIXES:
        for info in blobs.list(prefix):
            if keys.begun_at(info.key) is not None:
                yield info


def verify(row: Mapping[str, Any], data: pa.Buffer) -> None:
    """Raises CorruptBlob where a blob's bytes are not those that were written."""
    key = row["key"]
    if data.size != row["size"]:
        raise CorruptBlob(key, f"it holds {data.size} bytes, not {row['size']}")
    if row["encoding"] == "arrow":
        layout.read_index(key, data)
    elif checksum(data) != row["checksum"]:
        raise CorruptBlob(key, "its bytes do not match the checksum of its extents")
