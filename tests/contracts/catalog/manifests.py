"""The contract of `catalog.port.Catalog` for whole tables: exported rows can be loaded into any catalog."""

from __future__ import annotations

import pytest

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.kinds import KINDS
from anabranch.catalog.tables import TABLES, Value
from anabranch.model.append import Appended, Batch, Progress
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.producer import PlacedEvents, ProducerAnswer, ProducerAnswers, ProducerState
from anabranch.model.stream import Scope
from tests.contracts.catalog.samples import NOW, SEGMENT, STREAM, append, info, new_stream, part
from tests.contracts.catalog.suite import CatalogSuite

Dump = dict[str, list[tuple[Value, ...]]]


def dump(snapshot: Reading) -> Dump:
    """All rows of all tables."""
    found: Dump = {}
    for table in TABLES:
        rows = found[table.name] = []
        while page := snapshot.export(table.name, rows[-1][: table.key] if rows else None):
            rows += page
    return found


class ExportContract(CatalogSuite):
    def setup_method(self) -> None:
        """Open a catalog for one test, and fill it with rows of every table."""
        super().setup_method()
        self.log = new_stream(self.catalog)
        append(self.catalog, part(self.log, 3, writer="w", times=(5, 9)), part(self.log, 2, writer="w", first=3))
        with self.catalog.writing() as writing:
            writing.put_scope(Scope("öde", {"a": "ü"}, NOW))
            blob = writing.insert_blob("commits/a", 10, NOW, "arrow")
            writing.insert_blob("commits/b", 10, NOW, "arrow")
            writing.set_blob_dead(blob, Micros(NOW + 1))
            writing.put_progress(self.log, WriterId("fenced"), Progress(0, 7, ()), now=NOW)
            answer = ProducerAnswer(3, 4, 4, (PlacedEvents(SEGMENT.packed, 5, 6, NOW),))
            writing.put_producer(STREAM, "p", ProducerState(3, 4, ProducerAnswers.of([answer]), NOW))
            writing.put_producer(STREAM, "ü", ProducerState(seen_at=NOW))
            writing.record_request("r", "scale", "{}", now=NOW)
            writing.add_change(STREAM, "created", {"x": 1}, now=NOW)
            writing.add_change(None, "scope", {}, now=NOW)
            writing.put_alias(StreamName("iot", "further"), STREAM)
            for kind in KINDS.values():
                writing.put_state(kind, *kind.example)

    def copy(self, *, wiped: bool = False) -> Catalog:
        """Another catalog with the same rows."""
        with self.catalog.reading() as snapshot:
            rows = dump(snapshot)
        other = self.catalog if wiped else self.make()
        with other.writing() as writing:
            if wiped:
                writing.wipe()
                assert not any(dump(writing).values())
            for table in TABLES:
                writing.load(table.name, [row[: table.loaded] for row in rows[table.name]])
        return other

    def test_every_value_is_of_the_kind_its_column_says(self) -> None:
        kinds = {"int": int, "bool": bool, "text": str, "bytes": bytes}
        with self.catalog.reading() as snapshot:
            for table in TABLES:
                rows = dump(snapshot)[table.name]
                assert rows, f"no row of {table.name}"
                for row in rows:
                    for column, value in zip(table.columns, row, strict=True):
                        fits = column.nullable if value is None else type(value) is kinds[column.kind]
                        assert fits, (table.name, column.name, value)

    def test_a_catalog_made_of_anothers_rows_is_the_same(self) -> None:
        other = self.copy()
        with self.catalog.reading() as snapshot:
            before, view = dump(snapshot), snapshot.view(STREAM)
            progress = snapshot.progress(self.log, WriterId("w"))
            extents = snapshot.extents(self.log, 0, 100, 10)
        with other.reading() as snapshot:
            assert dump(snapshot) == before
            assert snapshot.view(STREAM) == view
            assert (
                snapshot.progress(self.log, WriterId("w"))
                == progress
                == Progress(5, 0, (Batch(0, 3, 0, NOW, 0), Batch(3, 2, 3, NOW, 0)))
            )
            assert snapshot.extents(self.log, 0, 100, 10) == extents
            assert snapshot.verify_database() == []
        (again,) = append(other, part(self.log, 2, writer="w", first=3))
        assert again == Appended(3, NOW, duplicate=True)
        other.close()

    def test_a_catalog_is_wiped_and_loaded_in_one_transaction(self) -> None:
        with self.catalog.reading() as snapshot:
            before = dump(snapshot)
        with pytest.raises(KeyboardInterrupt), self.catalog.writing() as writing:  # noqa: PT012 - the transaction is undone
            writing.wipe()
            raise KeyboardInterrupt
        with self.catalog.reading() as snapshot:
            assert dump(snapshot) == before
        self.copy(wiped=True)
        with self.catalog.reading() as snapshot:
            assert dump(snapshot) == before

    def test_no_id_is_given_again_after_ids_were_skipped(self) -> None:
        other = self.copy()
        with other.writing() as writing:
            writing.skip_ids(1_000)
            log = writing.new_log(STREAM, appended_at=NOW)
            blob = writing.insert_blob("commits/c", 1, NOW, "arrow")
            writing.add_change(None, "later", {}, now=NOW)
            assert log > self.log + 1_000
            known = [row.id for row in writing.blobs_after(BlobId(0), 10)]
            assert blob == known[-1] > known[-2] + 1_000
            changes = [change.sequence for change in writing.changes(0, 10)]
            assert changes[-1] > changes[-2] + 1_000
        other.close()
        empty = self.make()
        with empty.writing() as writing:
            writing.skip_ids(1_000)
            assert writing.new_log(STREAM, appended_at=NOW) > LogId(1_000)
        empty.close()

    def test_pages_join_without_a_gap(self) -> None:
        with self.catalog.writing() as writing:
            for number in range(2_500):
                writing.record_request(f"q{number:05}", "x", "[]", now=NOW)
        with self.catalog.reading() as snapshot:
            assert len(snapshot.export("requests")) == 1_000
            rows = dump(snapshot)["requests"]
        assert len(rows) == len({row[0] for row in rows}) == 2_501

    def test_a_blob_with_a_live_extent_is_found(self) -> None:
        with self.catalog.writing() as writing:
            other = info(78, "iot/other")
            writing.insert_stream(other)
        with self.catalog.reading() as snapshot:
            (first, second) = snapshot.export("blobs")
            assert (first[0], first[5], first[6]) == ("commits/a", NOW + 1, None)
            assert (second[0], second[5], second[6]) == ("commits/b", None, None)
            (segment,) = snapshot.export("segments")
            assert SegmentId.unpack(int(segment[1] or 0)) == SEGMENT
