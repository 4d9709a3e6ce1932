"""check --repair: what follows from other rows is put right, what does not is left alone, and nothing is ever lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from anabranch.log.checking.repair import RepairAction, advice, repair
from anabranch.log.lease import HeldLease
from tests import catalog_file
from tests.contracts.catalog.manifests import dump
from tests.postgres_server import drop, fresh_url
from tests.store.helpers import sound
from tests.store.log.checking.test_check import Sound
from tests.store.log.recovery.test_recovery import contents, fill, opened


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Sound]:
    made = Sound(tmp_path, inline_bytes_max=4_000)
    yield made
    made.close()


def mend(kit: Sound, *, dry_run: bool = False) -> list[RepairAction]:
    return list(repair(kit.catalog, now=kit.clock.now(), dry_run=dry_run))


def rows(kit: Sound) -> dict[str, list[tuple[object, ...]]]:
    with kit.catalog.reading() as snapshot:
        found = dump(snapshot)
    return {name: [*table] for name, table in found.items()}


# What may happen to a row, and the table and column it happens to.
DERIVED = {
    "size too small": "update logs set size = size - 7 where id = 1",
    "size too large": "update logs set size = size + 7 where id = 1",
    "append time": "update logs set appended_at = appended_at - 1 where id = 2",
    "event time": "update logs set event_high = event_high - 1 where id = 1",
    "event time unknown": "update logs set event_high = null where id = 1",
    "number": "update streams set next_number = 1 where name = 'sensors'",
    "several": "update logs set size = 0, appended_at = 0, event_high = null",
}


@pytest.mark.parametrize("damage", DERIVED)
def test_values_that_follow_from_other_rows_are_repaired(kit: Sound, damage: str) -> None:
    before = rows(kit)
    kit.sql(DERIVED[damage])
    damaged = rows(kit)
    assert kit.findings()
    planned = mend(kit, dry_run=True)
    assert planned
    assert rows(kit) == damaged, "a dry run changes nothing"
    assert mend(kit) == planned
    assert kit.findings() == []
    after = rows(kit)
    # A stream that was changed has a later version; all else is as it was.
    assert [row[:7] + row[8:] for row in after.pop("streams")] == [row[:7] + row[8:] for row in before.pop("streams")]
    assert after == before
    assert mend(kit) == []


def test_a_low_water_mark_is_raised_where_nothing_is_viewed_below(kit: Sound) -> None:
    log = kit.logs(kit.small)[0]
    first = kit.extents(log)[0]
    kit.sql('update spans set start = ?, "offset" = ? where log = ?', first.stop, first.stop, log)
    kit.sql("update segments set head = ? where stream = ?", first.stop, kit.small)
    kit.sql("delete from extents where log = ? and start = 0", log)
    assert kit.findings()
    (mended,) = mend(kit)
    assert mended.message == f"its low-water mark is {first.stop}, not 0"
    assert kit.findings() == []


def test_repair_does_not_hide_lost_events(kit: Sound) -> None:
    log = kit.logs(kit.small)[0]
    kit.sql("delete from extents where log = ? and start = 0", log)
    before = rows(kit)
    findings = kit.findings()
    assert findings
    assert mend(kit) == []
    assert rows(kit) == before
    assert "truncate" in advice(findings[0])


def test_a_head_below_the_first_span_is_raised(kit: Sound) -> None:
    log = kit.logs(kit.small)[0]
    first = kit.extents(log)[0]
    kit.sql('update spans set start = ?, "offset" = ? where log = ?', first.stop, first.stop, log)
    (mended,) = mend(kit)
    assert mended.where == "stream iot/small"
    assert kit.findings() == []


def test_a_sealed_segment_ends_where_its_log_does(kit: Sound) -> None:
    kit.sql("update streams set sealed = 1 where name = 'small'")
    length = sum(extent.stop - extent.start for extent in kit.extents(kit.logs(kit.small)[0]))
    assert mend(kit)
    assert kit.findings() == []
    (segment,) = kit.view(kit.small).ordered
    assert kit.view(kit.small).length(segment.id) == length


def test_a_log_without_a_following_span_is_sealed(kit: Sound) -> None:
    kit.sql(
        "insert into logs (stream, length, sealed, fence, low_water, size, appended_at, digest)"
        " values (?, 0, 0, 0, 0, 0, 0, 0)",
        kit.small,
    )
    assert kit.findings()
    assert [mended.message for mended in mend(kit)] == ["it is sealed: no span follows it"]
    assert kit.findings() == []


def test_a_lease_before_the_horizon_is_removed(kit: Sound) -> None:
    with HeldLease(kit.catalog, kit.runtime, "job", "me"):
        kit.sql("update leases set begun_at = 1")
        kit.sql("insert into meta (name, value) values ('horizon', 2) on conflict do update set value = 2")
        assert kit.findings()
        assert mend(kit)
        assert kit.findings() == []


# Here it can't be told which row is right, or bytes are gone.
UNSAFE = {
    "length too large": "update logs set length = length + 1 where id = 1",
    "length too small": "update logs set length = length - 1 where id = 1",
    "extent gone": "delete from extents where log = 1 and start = (select max(start) from extents where log = 1)",
    "extent in the midst gone": "delete from extents where log = 2 and start = (select min(start) from extents where log = 2 and start > 0)",
    "bytes changed": "update extents set data = zeroblob(length(data)) where data is not null",
    "checksum changed": "update extents set checksum = checksum + 1 where log = 1",
    "key range": "update segments set high = '0000000000000000f' where stream = (select id from streams where name = 'sensors')",
    "writer": "update writers set next = next + 1",
    "blob gone": "delete from blobs where id = (select min(blob) from extents)",
    "log gone": "delete from logs where id = 1",
}


@pytest.mark.parametrize("damage", UNSAFE)
def test_unrepairable_rows_are_left_and_reported(kit: Sound, damage: str) -> None:
    kit.sql(UNSAFE[damage])
    before = rows(kit)
    mended = mend(kit)
    findings = kit.findings()
    assert findings
    assert all(advice(finding) for finding in findings)
    if mended:  # what else follows may be put right, but no span, extent or blob is touched
        assert all(rows(kit)[table] == before[table] for table in ("spans", "extents", "blobs", "segments", "writers"))
    else:
        assert rows(kit) == before


def test_a_catalog_on_postgres_is_repaired_too(tmp_path: Path) -> None:
    url = fresh_url()
    with opened({"url": url, "blobs": tmp_path / "blobs"}) as store:
        fill(store)
        before = contents(store)
        base, _, schema = url.rpartition("schema=")
        with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
            database.execute(f'update "{schema}".logs set size = size + 1, event_high = null'.encode())
        assert list(store.check())
        planned = list(store.repair(dry_run=True))
        assert list(store.check())
        assert list(store.repair()) == planned != []
        assert sound(store)
        assert contents(store) == before
    drop(url)


def test_a_damaged_row_of_a_stream_does_not_keep_other_streams_from_repair(kit: Sound) -> None:
    kit.sql("update streams set next_number = 1 where name = 'sensors'")
    catalog_file.change(
        kit.folder / "catalog.db", "update streams set name = 'less' where name = 'small'", digested=False
    )
    assert [action.where for action in mend(kit)] == ["stream iot/sensors"]
