"""Readers of a group whose consumer is in another process, as a broker holds them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Truncated
from anabranch.groups.membership import Opening
from anabranch.store import Store
from tests.store.groups.kit import KEYS, write
from tests.store.helpers import bodies_of


def test_a_commit_is_written_also_where_its_segment_was_truncated_meanwhile(store: Store) -> None:
    store.streams.create("s/out")
    write(store, 0, 1)
    group = store.groups.open("s/g", streams=["s/a"])
    reader = group.hosted_reader("r", Opening("consumer", 1), delivery="exactly_once")
    first = reader.pull(60, lambda: False)
    assert first is not None
    reader.advance(0, whole=True)
    handed_out = reader.handed_out
    store.streams.scale("s/a", 1)
    store.streams.truncate("s/a", ab.TAIL)
    write(store, 1, 1)
    with pytest.raises(Truncated):
        reader.pull(60, lambda: False)
    assert first.segment not in reader.segments
    output = {"s/out": pa.table({"payload": [b"result"]})}
    reader.commit_to({first.segment: first.rows.stop}, output, handed_out=handed_out)
    assert bodies_of(store, "s/out") == [b"result"]
    following = reader.pull(60, lambda: False)
    assert following is not None and following.rows.batch.num_rows == KEYS
    reader.close()
