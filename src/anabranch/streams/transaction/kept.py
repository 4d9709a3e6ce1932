"""What a transaction has flushed: staged batches, named by its id, until it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.model.append import BlobEntry, Bounds, Place
from anabranch.model.ids import Micros, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.streams.stage import Run, Staged


def keep(txn: Writing, ident: str, number: int, staged: Mapping[StreamId, Sequence[Staged]]) -> None:
    """Keep one flush, the `number`th of the transaction. Its batches lie in blobs: no event stands in a piece, which
    is not encrypted."""
    value = {f"{stream:016x}": [_to_json(each) for each in batches] for stream, batches in staged.items()}
    txn.put_piece(Checkpointed(_kind(ident), f"{number:08x}", {"staged": value}))


def kept(txn: Reading, ident: str) -> dict[StreamId, tuple[Staged, ...]]:
    """All that was flushed, by stream, in the order of the flushes."""
    found: dict[StreamId, tuple[Staged, ...]] = {}
    for piece in txn.pieces(_kind(ident)):
        value: Any = piece.value["staged"]
        for stream, batches in value.items():
            key = StreamId(int(stream, 16))
            found[key] = found.get(key, ()) + tuple(map(_from_json, batches))
    return found


def drop_kept(txn: Writing, ident: str, flushes: int) -> None:
    """Forget what was flushed; blobs that nothing came to view are collected."""
    for number in range(flushes):
        txn.drop_piece(_kind(ident), f"{number:08x}")


def _kind(ident: str) -> str:
    return f"staged {ident}"


def _to_json(staged: Staged) -> dict[str, object]:
    assert staged.blob is not None
    assert staged.data is None
    return {
        "blob": [staged.blob.key, staged.blob.size, staged.blob.begun_at],
        "place": [staged.place.offset, staged.place.length, staged.place.row],
        "checksum": staged.checksum,
        "count": staged.count,
        "runs": [
            [f"{run.range.low:x}", f"{run.range.high:x}", run.row, run.count, run.bounds.low, run.bounds.high, run.size]
            for run in staged.runs
        ],
        "spread": f"{staged.spread:x}",
        "schema": staged.schema_version,
    }


def _from_json(value: Mapping[str, Any]) -> Staged:
    key, size, begun_at = value["blob"]
    return Staged(
        blob=BlobEntry(key, size, Micros(begun_at)),
        data=None,
        place=Place(*value["place"]),
        checksum=value["checksum"],
        count=value["count"],
        runs=tuple(
            Run(KeyRange(int(low, 16), int(high, 16)), row, count, Bounds(first, last), weight)
            for low, high, row, count, first, last, weight in value["runs"]
        ),
        spread=int(value["spread"], 16),
        schema_version=value["schema"],
    )
