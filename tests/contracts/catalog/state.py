"""The contract of `catalog.port.Catalog` for state: values of the kinds that `catalog.state` declares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.catalog.state.former_names import FORMER_SCOPE, FormerScope
from anabranch.catalog.state.job import JOB_MEMBER, members_prefix
from anabranch.catalog.state.kinds import KINDS
from anabranch.catalog.state.transaction import PUBLISHED, PublishedSeries
from anabranch.errors import CorruptCatalog
from tests.contracts.catalog.suite import CatalogSuite


class StateContract(CatalogSuite):
    def test_a_value_of_every_kind_is_read_as_it_was_written(self) -> None:
        for kind in KINDS.values():
            key, value = kind.example
            with self.catalog.writing() as writing:
                assert writing.state(kind, key) is None
                writing.put_state(kind, key, value)
                assert writing.state(kind, key) == value
            with self.catalog.reading() as reading:
                assert reading.state(kind, key) == value
                assert reading.states(kind) == [kind.example]
                lookup = kind.lookup(key, value)
                if lookup is not None:
                    assert reading.states_found(kind, lookup) == [kind.example]
            with self.catalog.writing() as writing:
                writing.drop_state(kind, key)
                writing.drop_state(kind, key)  # harmless
                assert writing.state(kind, key) is None
                assert writing.states(kind) == []

    def test_states_are_listed_by_key(self) -> None:
        with self.catalog.writing() as writing:
            for key, number in (("b", 1), ("a", 2), ("b", 3), ("ü", 4)):
                writing.put_state(PUBLISHED, key, PublishedSeries(number))
            writing.put_state(FORMER_SCOPE, "a", FormerScope("x"))
        with self.catalog.reading() as reading:
            found = reading.states(PUBLISHED)
            assert [(key, value.number) for key, value in found] == [("a", 2), ("b", 3), ("ü", 4)]
            assert reading.states(PUBLISHED, limit=1) == found[:1]
            assert reading.states_among(PUBLISHED, ["b", "c"]) == {"b": PublishedSeries(3)}
            assert reading.states_among(PUBLISHED, []) == {}
            assert reading.state(PUBLISHED, "c") is None
            assert reading.state(FORMER_SCOPE, "b") is None

    def test_states_are_found_by_how_their_keys_begin(self) -> None:
        _, member = JOB_MEMBER.example
        ids = [f"{members_prefix(job)}{number:06d}" for job in ("a", "ab", "b") for number in range(3)]
        with self.catalog.writing() as writing:
            for ident in ids:
                writing.put_state(JOB_MEMBER, ident, replace(member, id=ident))
        with self.catalog.reading() as reading:
            assert [key for key, _ in reading.states(JOB_MEMBER, prefix=members_prefix("a"))] == ids[:3]
            assert [key for key, _ in reading.states(JOB_MEMBER, prefix=members_prefix("ab"), limit=2)] == ids[3:5]
            assert reading.states(JOB_MEMBER, prefix=members_prefix("c")) == []

    def test_states_are_found_by_their_lookup_as_it_is_now(self) -> None:
        with self.catalog.writing() as writing:
            for name, to in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "z")):
                writing.put_state(FORMER_SCOPE, name, FormerScope(to))
            writing.put_state(FORMER_SCOPE, "b", FormerScope("x"))
            writing.drop_state(FORMER_SCOPE, "a")
            writing.put_state(PUBLISHED, "x", PublishedSeries(1))
        with self.catalog.reading() as reading:
            assert [key for key, _ in reading.states_found(FORMER_SCOPE, "x")] == ["b", "c"]
            assert [key for key, _ in reading.states_found(FORMER_SCOPE, "x", limit=1)] == ["b"]
            assert reading.states_found(FORMER_SCOPE, "y") == []
            assert [key for key, _ in reading.states_found(FORMER_SCOPE, "x", below="z")] == ["b", "c"]
            assert [key for key, _ in reading.states_found(FORMER_SCOPE, "y", below="zz")] == ["d"]

    def test_a_kind_that_is_not_listed_is_not_written(self) -> None:
        unlisted = replace(PUBLISHED, name="another")
        with pytest.raises(AssertionError), self.catalog.writing() as writing:
            writing.put_state(unlisted, "a", PublishedSeries(1))

    def test_a_row_that_no_kind_writes_is_reported_with_its_kind_and_key(self) -> None:
        """Its digest is sound: a row made by hand, or by a release that writes another form."""
        rows = [
            ("published", "a", None, '{"number":"7"}'),
            ("published", "b", None, '{"number":7,"more":1}'),
            ("published", "c", "lookup", '{"number":7}'),
            ("former_scope", "d", None, '{"to":"x"}'),
            ("companions", "E", None, '{"streams":[]}'),
            ("unknown", "f", None, "{}"),
        ]
        with self.catalog.writing() as writing:
            writing.put_state(PUBLISHED, "sound", PublishedSeries(1))
            writing.load("states", rows)
        with self.catalog.reading() as reading:
            _, flaws = reading.audit("states")
            for key in "abc":
                with pytest.raises(CorruptCatalog):
                    reading.state(PUBLISHED, key)
            with pytest.raises(CorruptCatalog):
                reading.states(PUBLISHED)
        assert sorted((flaw.table, flaw.row) for flaw in flaws) == sorted(
            ("states", f"{kind}, {key}") for kind, key, *_ in rows
        )
