"""What the files of a store hold: every file is accounted for, by its real size on disk, and what is kept says by what
and until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.blobs import keys
from anabranch.log.upkeep.space import PinnedBytes, SpaceReport, measure_space
from anabranch.model.cut import StreamCut
from anabranch.store import Store
from tests.store.helpers import bodies_of
from tests.store.kit import SECOND, Kit

PAYLOAD = 2_000


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(kit: Kit) -> Iterator[Store]:
    with Store(kit.catalog, kit.blobs, kit.runtime) as made:
        made.scopes.create("s")
        yield made


def on_disk(store: Store) -> int:
    """The bytes of all files, as the file system sees them."""
    return sum(Path(store.blobs.path(key)).stat().st_size for key in files(store))


def files(store: Store) -> list[str]:
    """The keys of all files; the catalog lies in the same folder."""
    return [info.key for prefix in (*keys.PREFIXES, keys.MANIFESTS) for info in store.blobs.list(prefix)]


def fill(store: Store, *names: str, events: int = 50) -> None:
    """Commits of their own; each is a file."""
    for name in names:
        with store.writer(name) as writer:
            for _ in range(events):
                writer.write(bytes(PAYLOAD))
            writer.flush()


def measured(store: Store) -> SpaceReport:
    report = store.space()
    assert report.total == on_disk(store)
    assert report.total == report.live + report.manifests + report.unused
    return report


def reasons(report: SpaceReport) -> dict[str, PinnedBytes]:
    found = {each.reason: each for each in report.pinned}
    assert len(found) == len(report.pinned)
    return found


def later(kit: Kit, seconds: int) -> None:
    kit.clock.pass_time(seconds * SECOND)


def collected(kit: Kit, store: Store) -> int:
    """Collect until nothing waits; the bytes freed."""
    freed = 0
    for _ in range(2):
        later(kit, 2 * limits.HORIZON_US // SECOND)
        freed += store.collect().bytes_freed
    return freed


def test_what_streams_view_is_live_and_nothing_is_pinned(store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    report = measured(store)
    assert report.live == report.total > 50 * PAYLOAD
    assert report.pinned == ()


def test_what_a_compaction_replaced_waits_for_the_grace_time_and_is_then_freed(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    fill(store, "s/a")
    before = on_disk(store)
    store.compact(force=True)
    pinned = reasons(measured(store))
    assert pinned.keys() == {"not collected yet"}
    assert pinned["not collected yet"].bytes == before
    now = kit.clock.now()
    store.collect()
    (waiting,) = measured(store).pinned
    assert (waiting.reason, waiting.bytes, waiting.files) == ("grace time", before, 2)
    assert waiting.until is not None
    assert now <= waiting.until - limits.HORIZON_US <= kit.clock.now()
    later(kit, limits.HORIZON_US // SECOND + 60)
    assert store.collect().bytes_freed == before
    report = measured(store)
    assert report.pinned == ()
    assert report.live == on_disk(store) < before


def test_what_a_lease_holds_is_shown_with_its_holder_and_its_end(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    with store.hold("backup", "nightly") as hold:
        store.streams.delete("s/a")
        store.collect()
        (pinned,) = measured(store).pinned
        assert (pinned.reason, pinned.by, pinned.until) == ("lease", "backup nightly", hold.lease.expires_at)
    (pinned,) = measured(store).pinned
    assert pinned.reason == "grace time"
    assert collected(kit, store) == pinned.bytes
    assert on_disk(store) == 0


def test_what_a_manifest_protects_is_shown_until_it_no_longer_does(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    events = on_disk(store)
    store.export_manifest()
    store.streams.delete("s/a")
    store.collect()
    report = measured(store)
    (pinned,) = report.pinned
    assert (pinned.reason, pinned.bytes) == ("manifest", events)
    assert report.manifests == on_disk(store) - events > 0
    assert collected(kit, store) == 0
    later(kit, limits.MANIFEST_PROTECTS_US // SECOND)
    assert store.collect().bytes_freed == events


def test_bytes_that_only_a_copy_still_views_are_live_and_name_the_copy(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    store.streams.copy("s/a", "s/b")
    assert measured(store).pinned == ()
    store.streams.delete("s/a")
    report = measured(store)
    (pinned,) = report.pinned
    assert (pinned.reason, pinned.by, pinned.live, pinned.until) == ("other streams", "s/b", True, None)
    assert pinned.bytes == report.live == on_disk(store)
    store.streams.delete("s/b")
    assert collected(kit, store) == pinned.bytes
    assert on_disk(store) == 0


def test_the_rest_of_a_commit_whose_other_segment_was_truncated_is_shown(kit: Kit, store: Store) -> None:
    store.streams.create("s/a", scaling=2)
    with store.writer("s/a") as writer:
        for n in range(50):
            writer.write(bytes(PAYLOAD), key=f"k{n}")
        writer.flush()
    view = store.streams.view("s/a")
    first, second = view.current
    store.streams.truncate("s/a", StreamCut.of(view.info.id, {first.id: view.length(first.id), second.id: 0}))
    collected(kit, store)
    report = measured(store)
    (pinned,) = report.pinned
    assert (pinned.reason, pinned.by, pinned.live) == ("shared file", "s/a", False)
    assert 0.2 * on_disk(store) < pinned.bytes < 0.8 * on_disk(store)


def test_the_rest_of_a_compacted_file_that_other_streams_share_is_shown(kit: Kit, store: Store) -> None:
    for name in ("s/a", "s/b"):
        store.streams.create(name)
    with store.transaction() as transaction:
        for name in ("s/a", "s/b"):
            writer = transaction.writer(name)
            for _ in range(50):
                writer.write(bytes(range(256)) * 8)
    store.compact(force=True)
    collected(kit, store)
    (key,) = files(store)
    whole = on_disk(store)
    store.streams.delete("s/a")
    collected(kit, store)
    report = measured(store)
    (pinned,) = report.pinned
    assert (pinned.reason, pinned.by, pinned.live) == ("shared file", "s/b", False)
    assert whole * 0.4 < pinned.bytes < whole * 0.6
    assert store.blobs.size(key) == whole
    assert len(bodies_of(store, "s/b")) == 50


def test_what_an_open_transaction_has_flushed_names_it_and_its_end(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    transaction = store.transaction()
    writer = transaction.writer("s/a")
    for _ in range(50):
        writer.write(bytes(PAYLOAD))
    transaction.flush()
    (pinned,) = measured(store).pinned
    (info,) = store.transactions.list()
    assert (pinned.reason, pinned.by, pinned.until) == ("transaction", info.id, info.expires_at)
    assert pinned.bytes == on_disk(store)
    transaction.abort()
    assert reasons(measured(store)).keys() <= {"upload", "lease", "grace time", "not collected yet"}
    collected(kit, store)
    assert on_disk(store) == 0


def test_what_a_truncation_let_go_is_freed_and_the_rest_stays(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a", events=50)
    half = on_disk(store)
    middle = store.cuts.tail("s/a")
    fill(store, "s/a", events=20)
    store.streams.truncate("s/a", middle)
    (pinned,) = measured(store).pinned
    assert (pinned.reason, pinned.bytes) == ("not collected yet", half)
    assert collected(kit, store) == half
    assert measured(store).pinned == ()
    assert len(bodies_of(store, "s/a")) == 20


def test_a_copy_by_a_filter_shares_what_it_did_not_rewrite(store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    before = on_disk(store)
    store.streams.copy("s/a", "s/b", where="true")
    assert on_disk(store) == before
    assert measure_space(store.catalog, store.blobs, store.runtime).pinned == ()


def test_what_only_a_job_views_names_the_job(kit: Kit, store: Store) -> None:
    store.streams.create("s/a")
    fill(store, "s/a")
    seen: list[SpaceReport] = []

    def look(_what: str, _done: int, _total: int | None) -> None:
        store.streams.delete("s/a")
        seen.append(measured(store))

    store.streams.copy("s/a", "s/b", where="_offset % 2 = 0", progress=look)
    (row,) = store.jobs.list()
    (pinned,) = seen[0].pinned
    assert (pinned.reason, pinned.by, pinned.live) == ("job", row.id, True)
    assert seen[0].live == seen[0].total == pinned.bytes
    collected(kit, store)
    assert measured(store).pinned == ()
    assert len(bodies_of(store, "s/b")) == 25
