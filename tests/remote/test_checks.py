"""Checks on the events of a stream through a broker: set, shown and enforced as in the store itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import InvalidSql, SchemaMismatch
from anabranch.store import Store
from tests.waiting import until

_SCHEMA = pa.schema([("device", pa.string()), ("n", pa.int64())])


def test_a_client_sets_checks_and_is_refused_by_them(embedded: Store, remote: Store) -> None:
    remote.scopes.create("s")
    remote.streams.create("s/x", schema=_SCHEMA, key="device", checks={"range": "n BETWEEN 0 AND 9"})
    assert remote.streams.get("s/x").schema.checks == embedded.streams.get("s/x").schema.checks
    with remote.writer("s/x") as writer:
        writer.write({"device": "a", "n": 1}).result()
        with pytest.raises(SchemaMismatch, match=r"breaks the check 'range' \(n BETWEEN 0 AND 9\): n = 10"):
            writer.write_batch(pa.table({"device": ["a"], "n": [10]})).result()
        embedded.streams.add_check("s/x", "device", "device <> 'b'")

        def refused() -> bool:
            try:
                writer.write({"device": "b", "n": 2}).result()
            except SchemaMismatch as error:
                return "breaks the check 'device'" in str(error)
            return False

        until(refused, 10 * limits.SCHEMA_FRESH_S)
        with pytest.raises(SchemaMismatch):
            writer.flush()
    with pytest.raises(InvalidSql, match="unknown column 'x'"):
        remote.streams.add_check("s/x", "c", "x > 0")
    assert [each.name for each in remote.streams.remove_check("s/x", "range").schema.checks] == ["device"]


def test_violations_are_diverted_in_transactions_through_a_broker(embedded: Store, remote: Store) -> None:
    remote.scopes.create("s")
    remote.streams.create("s/x", schema=_SCHEMA, key="device")
    remote.streams.add_check("s/x", "range", "n BETWEEN 0 AND 9", violations="s/rejected")
    assert remote.streams.get("s/x").schema.checks == embedded.streams.get("s/x").schema.checks
    with remote.transaction() as transaction:
        writer = transaction.writer("s/x")
        writer.write_batch(pa.table({"device": ["a", "b"], "n": [1, 10]}))
        writer.write({"device": "a", "n": 11})
        writer.write({"device": "a", "n": 2})
    for stream, expected in (("s/x", [1, 2]), ("s/rejected", [10, 11])):
        with embedded.reader(stream) as reader:
            assert [event.body["n"] for event in reader] == expected
