"""check finds what is wrong and says where; of a sound store it says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.core.checksum import checksum
from anabranch.errors import Closed, LeaseExpired, StoreUnavailable, StreamNotFound
from anabranch.log.checking.check import Finding, Severity, check
from anabranch.log.lease import HeldLease
from anabranch.log.upkeep.collect import collect
from anabranch.log.upkeep.compact import compact
from anabranch.model.ids import Micros, StreamId
from tests import catalog_file
from tests.store.kit import SECOND, Kit, change, is_postgres


class Sound(Kit):
    """A store with a bit of everything: `iot/sensors` has two segments, its extents are partly Parquet, partly Arrow
    and partly inlined; `iot/small` lies inlined alone; `iot/copy` views the logs of `iot/sensors`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sensors = self.create("iot/sensors", segments=2)
        self.small = self.create("iot/small")
        self.fill(3, 400)
        compact(self.catalog, self.blobs, self.runtime, stream=self.sensors, force=True)
        self.fill(3, 400)
        self.fill(2, 5)
        for _ in range(2):
            self.append(self.small, [4])
        self.copy(self.sensors, "iot/copy")

    def fill(self, commits: int, rows: int) -> None:
        for _ in range(commits):
            self.append(self.sensors, [rows, rows // 2])
            self.clock.pass_time(SECOND)

    def findings(self, **options: Any) -> list[Finding]:
        return list(check(self.catalog, self.blobs, now=self.clock.now(), **options))

    def sql(self, statement: str, *values: object) -> None:
        """Change the catalog behind the store's back."""
        assert change(self.folder, statement, *values) > 0, f"{statement} changed nothing"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Sound]:
    made = Sound(tmp_path, inline_bytes_max=4_000)
    yield made
    made.close()


def test_a_sound_store_gives_no_finding(kit: Sound) -> None:
    assert kit.findings() == []
    assert {extent.encoding for extent in kit.all_extents(kit.sensors)} == {"arrow", "parquet"}
    assert any(extent.data for extent in kit.all_extents(kit.sensors))
    for stream in (kit.sensors, kit.small):
        assert kit.findings(stream=stream) == []
    collect(kit.catalog, kit.blobs, kit.runtime)
    kit.clock.pass_time(2 * limits.HORIZON_US)
    collect(kit.catalog, kit.blobs, kit.runtime)
    assert kit.findings() == []


def test_an_empty_store_gives_no_finding(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    assert list(check(kit.catalog, kit.blobs)) == []
    kit.create("iot/empty", segments=3)
    assert list(check(kit.catalog, kit.blobs)) == []
    kit.close()


# each case: what is done to the rows, then words that some finding's place and text must hold
ROWS = {
    "a segment's range shrank": (
        "update segments set high = '07000000000000000' where low = '00000000000000000' and stream = :sensors",
        ("stream iot/sensors",),
        ("epoch 0", "do not cover"),
    ),
    "a segment's range grew over its neighbour": (
        "update segments set high = '0c000000000000000' where low = '00000000000000000' and stream = :sensors",
        ("stream iot/sensors",),
        ("overlap",),
    ),
    "a segment's range is no range": (
        "update segments set high = low where segment = 1 and stream = :sensors",
        ("stream iot/sensors",),
        ("is not a key range",),
    ),
    "a segment is gone": (
        "delete from segments where segment = 1 and stream = :sensors",
        ("stream iot/sensors", "segment 0.1"),
        ("does not exist",),
    ),
    "a segment was retired before it was created": (
        "update segments set retired = 0 where segment = 1 and stream = :sensors",
        ("stream iot/sensors", "segment 0.1"),
        ("retired in epoch 0",),
    ),
    "a segment's number was not yet given out": (
        "update streams set next_number = 1 where id = :sensors",
        ("stream iot/sensors", "segment 0.1"),
        ("next number is 1",),
    ),
    "an epoch has no segments": (
        "update streams set epoch = 3 where id = :sensors",
        ("stream iot/sensors",),
        ("epoch 2",),
    ),
    "a head lies behind the tail": (
        "update segments set head = 99999 where segment = 1 and stream = :sensors",
        ("stream iot/sensors", "segment 0.1"),
        ("head is 99999",),
    ),
    "a span is gone": (
        "delete from spans where segment = 1 and stream = :sensors",
        ("stream iot/sensors", "segment 0.1"),
        ("has no span",),
    ),
    "a span ends beyond its log": (
        "update spans set stop = 99999 where segment = 1 and stream <> :sensors",
        ("stream iot/copy", "segment 0.1", "log 2"),
        ("99999",),
    ),
    "a span begins elsewhere": (
        "update spans set start = 99999 where segment = 1 and stream = :sensors",
        ("stream iot/sensors", "segment 0.1", "log 2"),
        ("99999",),
    ),
    "a span lies in a log that is not there": (
        "update spans set log = 77 where segment = 1 and stream = :sensors",
        ("stream iot/sensors", "segment 0.1", "log 77"),
        ("does not exist",),
    ),
    "an open segment's span is closed": (
        "update spans set stop = 1300 where segment = 0 and stream = :sensors",
        ("stream iot/sensors", "segment 0.0", "log 1"),
        ("is open, but its last span does not follow its log",),
    ),
    "a sealed segment's span is open": (
        "update spans set stop = null where segment = 0 and stream <> :sensors and stream <> :small",
        ("stream iot/copy", "segment 0.0", "log 1"),
        ("is sealed",),
    ),
    "two spans follow one log": (
        "update spans set stop = null where segment = 0 and stream <> :sensors and stream <> :small",
        ("log 1",),
        ("2 spans follow it",),
    ),
    "an open segment's log is sealed": (
        "update logs set sealed = true where id = 1",
        ("stream iot/sensors", "segment 0.0", "log 1"),
        ("is sealed",),
    ),
    "a log's length is too large": ("update logs set length = length + 1 where id = 2", ("log 2",), ("in no extent",)),
    "a log's length is too small": ("update logs set length = length - 1 where id = 2", ("log 2",), ("beyond",)),
    "a log's size is wrong": ("update logs set size = size + 1 where id = 2", ("log 2",), ("logical bytes",)),
    "a log's low-water mark is too large": (
        "update logs set low_water = 5 where id = 1",
        ("stream iot/sensors", "segment 0.0", "log 1"),
        ("only at 5",),
    ),
    "a log's append time went back": (
        "update logs set appended_at = 1 where id = 2",
        ("iot/sensors", "log 2"),
        ("appended at",),
    ),
    "a log's newest event time is too low": (
        "update logs set event_high = 1 where id = 2",
        ("log 2",),
        ("event times",),
    ),
    "an extent is gone": (
        "delete from extents where log = 1 and start = 1600",
        ("stream iot/sensors", "segment 0.0", "log 1"),
        ("positions 1600 … 1999 are in no extent",),
    ),
    "a log's last extent is gone": (
        "delete from extents where log = 3 and start = 4",
        ("stream iot/small", "segment 0.0", "log 3"),
        ("positions 4 … 7",),
    ),
    "all of a log's extents are gone": (
        "delete from extents where log = 3",
        ("iot/small", "log 3"),
        ("positions 0 … 7",),
    ),
    "an extent overlaps the next": (
        "update extents set stop = stop + 1 where log = 1 and start = 1600",
        ("log 1",),
        ("overlaps",),
    ),
    "an extent is empty": ("update extents set stop = start where log = 3 and start = 4", ("log 3",), ("is empty",)),
    "an extent's running size went back": (
        "update extents set size_end = 1 where log = 1 and start = 1600",
        ("log 1",),
        ("logical byte 1",),
    ),
    "an extent's append time went back": (
        "update extents set appended_low = 1, appended_high = 1 where log = 1 and start = 1600",
        ("log 1",),
        ("appended at 1 µs",),
    ),
    "an extent's event times are turned round": (
        "update extents set event_low = event_high + 1 where log = 1 and start = 1600",
        ("log 1",),
        ("event times from",),
    ),
    "an extent's event times are too narrow": (
        "update extents set event_low = event_high where log = 1 and start = 1600",
        ("log 1", "blob commits/"),
        ("its event times are",),
    ),
    "an inlined extent's event times are too narrow": (
        "update extents set event_low = event_high where log = 3 and start = 4",
        ("log 3",),
        ("its event times are",),
    ),
    "a compacted extent's event times are too narrow": (
        "update extents set event_low = event_high where log = 1 and start = 0",
        ("log 1", "blob history/"),
        ("its event times are",),
    ),
    "a compacted extent's append times are too narrow": (
        "update extents set appended_low = appended_high where log = 1 and start = 0",
        ("log 1", "blob history/"),
        ("its append times are",),
    ),
    "an extent's checksum changed": (
        "update extents set checksum = checksum + 1 where log = 1 and start = 1600",
        ("stream iot/sensors", "segment 0.0", "log 1", "blob commits/"),
        ("1600 … 2000", "checksum"),
    ),
    "a compacted extent's checksum changed": (
        "update extents set checksum = checksum + 1 where log = 1 and start = 0",
        ("stream iot/sensors", "log 1", "blob history/"),
        ("checksum",),
    ),
    "an extent's place changed": (
        "update extents set at = at + 64 where log = 1 and start = 1600",
        ("log 1", "blob commits/"),
        ("index has no part",),
    ),
    "an extent's place lies beyond its blob": (
        "update extents set at = 1000000000 where log = 1 and start = 1600",
        ("log 1", "blob commits/"),
        ("beyond the blob's",),
    ),
    "an extent's first row changed": (
        "update extents set row = 7 where log = 1 and start = 1600",
        ("log 1", "blob commits/"),
        ("rows 7",),
    ),
    "a compacted extent's first row changed": (
        "update extents set row = row + 7 where log = 1 and start = 0",
        ("log 1", "blob history/"),
        ("no such part",),
    ),
    "an extent's schema does not exist": (
        "update extents set schema = 9 where log = 1 and start = 1600",
        ("stream iot/sensors", "log 1"),
        ("schema 9",),
    ),
    "an extent's encoding is another": (
        "update extents set encoding = 'parquet' where log = 1 and start = 1600",
        ("log 1", "blob commits/"),
        ("is parquet",),
    ),
    "an extent's encoding is unknown": (
        "update extents set encoding = 'csv' where log = 3 and start = 4",
        ("log 3",),
        ("unknown encoding 'csv'",),
    ),
    "an extent's inlined bytes are gone": (
        "update extents set data = null where log = 3 and start = 4",
        ("stream iot/small", "log 3"),
        ("neither a blob nor inlined bytes",),
    ),
    "an extent's inlined bytes changed": (
        "update extents set data = zeroblob(length(data)) where log = 3 and start = 4",
        ("stream iot/small", "log 3"),
        ("4 … 8", "checksum"),
    ),
    "a blob's row is gone": (
        "delete from blobs where encoding = 'parquet'",
        ("stream iot/sensors", "log 1"),
        ("which the catalog does not list",),
    ),
    "a blob's size is wrong": (
        "update blobs set size = size + 1 where encoding = 'parquet'",
        ("stream iot/sensors", "blob history/"),
        ("bytes, not",),
    ),
    "a blob's time is not its key's": (
        "update blobs set begun_at = begun_at + 1 where encoding = 'parquet'",
        ("blob history/",),
        ("than its key",),
    ),
    "a writer's next number is wrong": (
        "update writers set next = next + 1 where log = 1",
        ("stream iot/sensors", "segment 0.0", "log 1"),
        ("writer w continues at",),
    ),
    "a writer's batches are garbage": (
        "update writers set recent = zeroblob(80) where log = 1",
        ("log 1",),
        ("writer w",),
    ),
    "a writer's batches are no batches": ("update writers set recent = zeroblob(63) where log = 1", ("log 1",), ()),
    "a schema's bytes are no schema": (
        "update schemas set columns = x'00' where stream = :small",
        ("stream",),
        (),
    ),
    "a lease is older than the horizon": (
        "insert into leases values ('l', 'scan', 'me', 1, 9000000000000000, 0)",
        ("lease l",),
        ("protects nothing",),
    ),
}


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_a_wrong_row_is_found_and_named(kit: Sound, case: str) -> None:
    statement, places, words = ROWS[case]
    collect(kit.catalog, kit.blobs, kit.runtime)  # so that there is a horizon
    statement = statement.replace(":sensors", str(kit.sensors)).replace(":small", str(kit.small))
    kit.sql(statement)
    findings = kit.findings()
    found = [f for f in findings if all(p in f.where for p in places) and all(w in f.message for w in words)]
    assert found, findings


def test_a_damaged_database_is_a_finding(kit: Sound) -> None:
    if is_postgres():
        index = "(select oid from pg_class where relname = 'extents_by_blob' and relnamespace = current_schema()::regnamespace)"
        kit.sql(f"update pg_index set indisvalid = false where indexrelid = {index}")
        assert any("extents_by_blob" in f.message for f in kit.findings() if f.where == "database")
        return
    kit.catalog.close()
    path = kit.folder / "catalog.db"
    ((page,),) = catalog_file.ask(path, "select rootpage from sqlite_master where name = 'extents'")
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(data)
    again = Kit(kit.folder)
    findings = list(check(again.catalog, again.blobs))
    assert any(finding.where == "database" for finding in findings), findings
    again.close()


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x01]))


@pytest.mark.parametrize("prefix", ["commits/", "history/"])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.999])
def test_a_flipped_bit_anywhere_in_a_blob_is_found(kit: Sound, prefix: str, share: float) -> None:
    key = kit.files(prefix)[-1]
    flip(kit.folder / key, int(share * (kit.blobs.size(key) or 0)))
    findings = kit.findings()
    assert findings
    assert all(key in f.where and "stream iot/sensors" in f.where for f in findings)
    assert kit.findings(deep=False) == []
    assert kit.findings(stream=kit.sensors) == findings
    assert kit.findings(stream=kit.small) == []


@pytest.mark.parametrize("prefix", ["commits/", "history/"])
def test_a_missing_or_shortened_blob_is_found_without_reading(kit: Sound, prefix: str) -> None:
    key = kit.files(prefix)[-1]
    path = kit.folder / key
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    (finding,) = kit.findings(deep=False)
    assert key in finding.where
    assert f"{len(whole) - 1} bytes, not {len(whole)}" in finding.message
    path.unlink()
    (finding,) = kit.findings(deep=False)
    assert key in finding.where
    assert "missing" in finding.message
    assert "stream iot/sensors" in str(finding)


def test_swapped_bytes_with_their_checksum_are_found(kit: Sound) -> None:
    """A forger who also repairs the extent's checksum still meets the header's."""
    (log, _) = kit.logs(kit.sensors)
    extent = next(e for e in kit.extents(log) if e.encoding == "arrow" and e.key)
    assert extent.key is not None
    flip(kit.folder / extent.key, extent.location.offset + extent.location.length - 8)
    message = kit.blobs.get(extent.key, extent.location.offset, extent.location.length)
    kit.sql("update extents set checksum = ? where log = ? and start = ?", checksum(message), log, extent.start)
    assert any("checksum does not match" in f.message for f in kit.findings())


def test_a_check_of_one_stream_reports_only_it(kit: Sound) -> None:
    kit.sql("update logs set size = size + 1 where id = 3")
    assert kit.findings(stream=kit.sensors) == []
    assert len(kit.findings(stream=kit.small)) == 1
    with pytest.raises(StreamNotFound):
        kit.findings(stream=StreamId(1))


def test_a_horizon_ahead_of_the_clock_is_a_warning(kit: Sound) -> None:
    collect(kit.catalog, kit.blobs, kit.runtime, horizon_us=0)
    kit.clock.pass_time(-SECOND)
    (finding,) = kit.findings()
    assert finding.severity is Severity.WARNING


def test_concurrent_changes_cause_no_finding(kit: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any look at it, in between the pages of a log too, the store is appended to, compacted and collected."""
    monkeypatch.setattr(limits, "EXTENTS_PER_PLAN_MAX", 2)
    monkeypatch.setattr(limits, "CATALOG_PAGE_ROWS", 1)
    reading, looks, looking = kit.catalog.reading, 0, True

    def meddled() -> AbstractContextManager[Reading]:
        nonlocal looks, looking
        if looking:
            looking, looks = False, looks + 1
            kit.append(kit.sensors, [20, 10])
            if looks % 3 == 0:
                compact(kit.catalog, kit.blobs, kit.runtime, force=True)
            collect(kit.catalog, kit.blobs, kit.runtime, horizon_us=0)
            kit.clock.pass_time(1)
            looking = True
        return reading()

    monkeypatch.setattr(kit.catalog, "reading", meddled)
    assert list(check(kit.catalog, kit.blobs)) == []
    assert looks > 25  # without the pages they are 20


def test_a_lease_ended_by_another_clock_loses_nothing(kit: Sound) -> None:
    with HeldLease(kit.catalog, kit.runtime, "scan", "me") as hold:
        with kit.catalog.writing() as txn:
            txn.set_horizon(Micros(hold.begun_at + 1))  # as a process does whose clock is ahead
        found = [finding for finding in kit.findings() if finding.where.startswith("lease")]
        assert [finding.severity for finding in found] == [Severity.WARNING]
        with pytest.raises(LeaseExpired), kit.catalog.writing() as txn:
            hold.verify(txn)


def test_active_leases_are_no_findings(kit: Sound) -> None:
    with HeldLease(kit.catalog, kit.runtime, "scan", "me"):
        collect(kit.catalog, kit.blobs, kit.runtime, horizon_us=0)
        assert kit.findings() == []


class Fading:
    """A catalog whose server goes away after so many snapshots."""

    def __init__(self, catalog: Catalog, left: int) -> None:
        self.catalog = catalog
        self.left = left

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with self.catalog.reading() as snapshot:
            yield snapshot
            self.left -= 1
            if self.left < 0:
                raise StoreUnavailable("the server closed the connection")


def test_an_unreachable_catalog_is_not_a_finding(kit: Sound) -> None:
    for left in range(12):
        with pytest.raises(StoreUnavailable, match="closed the connection"):
            list(check(cast(Catalog, Fading(kit.catalog, left)), kit.blobs, now=kit.clock.now()))


def test_a_closed_store_raises_closed(kit: Sound) -> None:
    kit.close()
    with pytest.raises(Closed):
        kit.findings()
