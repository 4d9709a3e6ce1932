"""Streams worth archiving, and what tells whether two are the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from anabranch.store import Store
from tests.store.helpers import sound

SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
ADDED = ["_segment", "_offset", "_appended"]


def fill(store: Store, name: str = "iot/x", count: int = 60) -> None:
    """A stream of several epochs with a truncated head, a wider schema, blobs, inlined events and Parquet."""
    store.streams.create(name, schema=SCHEMA, key="device", time="at", scaling=2, tags={"a": "b"})
    with store.writer(name) as writer:
        writer.write_batch(rows(0, count)).result()
        store.compact(force=True)
        store.streams.truncate(name, store.cuts.at(name, 10_000, by="event"))
        store.streams.scale(name, 3)
        writer.write_batch(rows(count, count)).result()
    store.streams.evolve(name, pa.schema([*SCHEMA, ("note", pa.string())]))
    with store.writer(name) as writer:
        for n in range(3):
            writer.write({"device": f"d{n}", "at": n, "n": n, "note": "late"}).result()


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    times = pa.array([1_000 * n for n in numbers], SCHEMA.field("at").type)
    return pa.table({"device": [f"d{n % 7}" for n in numbers], "at": times, "n": list(numbers)}, schema=SCHEMA)


def table(store: Store, name: str) -> pa.Table:
    """All that a stream holds, in one order."""
    with store.reader(name) as reader:
        whole = pa.Table.from_batches(reader.batches(), reader.schema)
    return whole.sort_by([("_segment", "ascending"), ("_offset", "ascending")])


def segments(store: Store, name: str) -> list[Any]:
    view = store.streams.view(name)
    return [(s.id, s.range, s.retired, s.head, view.length(s.id)) for s in view.ordered]


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def assert_same(store: Store, name: str, other: Store, twin: str) -> None:
    assert table(other, twin).equals(table(store, name))
    assert segments(other, twin) == segments(store, name)
    mine, theirs = store.streams.get(name), other.streams.get(twin)
    assert (theirs.schema, theirs.schema_version, theirs.tags) == (mine.schema, mine.schema_version, mine.tags)
    assert (theirs.epoch, theirs.next_number, theirs.sealed) == (mine.epoch, mine.next_number, mine.sealed)
    with store.catalog.reading() as here, other.catalog.reading() as there:
        for version in range(1, mine.schema_version + 1):
            assert there.schema(theirs.id, version) == here.schema(mine.id, version)
    assert other.archives.digest(twin) == store.archives.digest(name)
    assert sound(other)


def damaged(folder: Path, name: str, how: str, chance: random.Random) -> str | None:
    """Damage a file; the name that is to be told, None for the file's own."""
    path = folder / name
    data = bytearray(path.read_bytes())
    match how:
        case "missing":
            path.unlink()
            return None
        case "short":
            data = data[: chance.randrange(len(data))]
        case "long":
            data += b"\0"
        case "flipped":
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "extra":
            (path.parent / "stranger.parquet").write_bytes(b"PAR1")
            return (path.parent / "stranger.parquet").relative_to(folder).as_posix()
    path.write_bytes(data)
    return None


def signing_keys(folder: Path, name: str) -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.chmod(0o600)
    return str(private), str(public)
