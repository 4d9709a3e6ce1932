"""Upkeep that fails for one stream goes on with all others, tells what failed, and waits before it tries again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import apsw
import psycopg
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import SchemaMismatch
from anabranch.export.metrics import exposition
from anabranch.log.checking.check import Severity
from anabranch.log.upkeep import failures as isolation
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.streams.lifecycle.create import create_stream
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.store.helpers import ANYWHERE, store_at
from tests.waiting import until

ODD = StreamSchema(pa.schema([("v", pa.decimal128(5, -2))]), None, None)


def make_odd(store: Store, name: str) -> None:
    """A stream as releases made it that did not refuse its column."""
    with store.catalog.writing() as txn:
        ident = StreamId(SystemIds().bits(63))
        create_stream(txn, StreamName.parse(name), ident, ODD, Fixed(1), {}, store.runtime.clock.now())
    with store.writer(name) as writer:
        writer.write({"v": Decimal("1E+4")}).result()


def fill(store: Store, name: str) -> None:
    store.streams.create(name)
    with store.writer(name) as writer:
        writer.write(b"x" * 100_000).result()


def tiers(store: Store) -> dict[str, set[str]]:
    """How the extents of each stream are encoded."""
    found: dict[str, set[str]] = {}
    with store.catalog.reading() as reading:
        for info in reading.streams():
            view = reading.view(info.id)
            assert view is not None
            for log in view.logs:
                kinds = {extent.encoding for extent in reading.extents(log, 0, 1 << 62, 100)}
                found.setdefault(str(info.name), set()).update(kinds)
    return found


@pytest.fixture(params=ANYWHERE)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        store.scopes.create("i")
        fill(store, "i/before")
        make_odd(store, "i/odd")
        fill(store, "i/behind")
        yield store


def test_a_failing_stream_does_not_stop_compaction_of_others(odd: Store) -> None:
    report = odd.compact(force=True)
    assert tiers(odd) == {"i/before": {"parquet"}, "i/odd": {"arrow"}, "i/behind": {"parquet"}}
    assert len(report.skipped) == 1
    assert "v: decimal128(5, -2)" in report.skipped[0]
    with odd.reader("i/odd") as reader:
        assert [event.body for event in reader] == [{"v": Decimal("1E+4")}]


def test_a_file_that_several_streams_share_is_written_for_those_that_can_be(tmp_path: Path) -> None:
    """Small logs with equal columns share a file; here those of one stream are damaged in a way nobody foresaw."""
    with store_at("memory", tmp_path) as store:
        for name in ("s/x", "s/y", "s/z"):
            fill(store, name)
        broken = store.streams.get("s/y").id
        put = store.catalog.writing

        def failing(on: object = None) -> object:
            context = put(on)  # type: ignore[arg-type]

            class Wrapped:
                def __enter__(self) -> object:
                    txn = context.__enter__()
                    swap = txn.swap_extents

                    def swapped(log: int, *rest: object) -> bool:
                        if txn.logs([log])[log].stream == broken:  # type: ignore[list-item,index]
                            raise ZeroDivisionError("an odd row")
                        return swap(log, *rest)  # type: ignore[arg-type]

                    txn.swap_extents = swapped  # type: ignore[method-assign,assignment]
                    return txn

                def __exit__(self, *error: object) -> object:
                    return context.__exit__(*error)  # type: ignore[arg-type]

            return Wrapped()

        store.catalog.writing = failing  # type: ignore[method-assign,assignment]
        report = store.compact(force=True)
        del store.catalog.writing
        assert {name: kinds for name, kinds in tiers(store).items() if name != "s/a"} == {
            "s/x": {"parquet"},
            "s/y": {"arrow"},
            "s/z": {"parquet"},
        }
        assert [each.split(": ")[1:] for each in report.skipped] == [["an odd row"]]
        assert [each.name for each in store.upkeep_failures()] == ["s/y"]


def test_failures_are_reported_by_check_and_metrics_until_success(odd: Store) -> None:
    assert odd.upkeep_failures() == []
    assert list(odd.check()) == []
    for times in (1, 2):
        odd.compact(force=True)
        (failure,) = odd.upkeep_failures()
        assert (failure.name, failure.task, failure.times) == ("i/odd", "compact", times)
        (finding,) = odd.check()
        assert finding.severity is Severity.WARNING
        assert finding.where == "upkeep of stream i/odd"
        assert f"compact has failed {times} time(s) in a row" in finding.message
        assert [each.where for each in odd.check("i/odd")] == ["upkeep of stream i/odd"]
        assert list(odd.check("i/before")) == []
        assert f'anabranch_upkeep_failures{{stream="i/odd",task="compact"}} {times}\n' in exposition(odd)
    odd.streams.delete("i/odd")
    odd.compact(force=True)
    assert odd.upkeep_failures() == []
    assert list(odd.check()) == []
    assert "anabranch_upkeep_failures{" not in exposition(odd)


def test_background_retries_back_off(tmp_path: Path) -> None:
    clock = ManualClock()
    with clocked(tmp_path, clock) as store:
        store.scopes.create("i")
        make_odd(store, "i/odd")
        clock.pass_time(2 * limits.COMPACT_AGE_US)  # so that it is worth compacting
        waited = []
        for _ in range(12):
            (before,) = [each.times for each in store.upkeep_failures()] or [0]
            store._maintenance._round()
            (failure,) = store.upkeep_failures()
            assert failure.times == before + 1
            store._maintenance._round()
            assert store.upkeep_failures() == [failure], "it was tried before its time"
            waited.append(failure.next_at - failure.failed_at)
            clock.pass_time(failure.next_at - failure.failed_at)
        first, last = limits.UPKEEP_RETRY_US, limits.UPKEEP_RETRY_US_MAX
        assert waited == [min(first * 2**n, last) for n in range(12)]
        assert waited[-1] == last
        clock.pass_time(-1)
        store.compact("i/odd", force=True)  # who asks for it is not kept waiting
        assert store.upkeep_failures()[0].times == 13


def test_upkeep_continues_after_a_failed_compaction(tmp_path: Path) -> None:
    clock = ManualClock()
    with clocked(tmp_path, clock, manifest_s=0.001) as store:
        store.scopes.create("i")
        make_odd(store, "i/odd")
        fill(store, "i/gone")
        store.streams.delete("i/gone")
        for _ in range(3):
            clock.pass_time(2 * limits.HORIZON_US)
            store._maintenance._round()
        assert len(list(store.blobs.list("manifests/"))) > 0
        with store.catalog.reading() as reading:
            assert {log.stream for log in reading.logs_after(0, 100)} == {store.streams.get("i/odd").id}  # type: ignore[arg-type]


def test_retention_and_scaling_of_one_stream_that_fail_stop_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.streams.retention import apply as retain
    from anabranch.streams.scaling import apply as rescale

    clock = ManualClock()
    with clocked(tmp_path, clock) as store:
        for name in ("s/x", "s/y", "s/z"):
            store.streams.create(
                name, retention=ab.RetainFor("1h"), scaling=ab.ByEventRate(1000), schema=pa.schema([("v", pa.int8())])
            )
            with store.writer(name) as writer:
                writer.write({"v": 1}).result()
        bad = store.streams.get("s/y").id
        for module, name in ((retain, "need_view"), (rescale, "need_view")):
            honest = getattr(module, name)

            def need(txn: object, stream: object, honest: object = honest) -> object:
                if stream == bad:
                    raise ZeroDivisionError("an odd row")
                return honest(txn, stream)  # type: ignore[operator]

            monkeypatch.setattr(module, name, need)
        clock.pass_time(2 * 3600 * 1_000_000)
        report = store.retain()
        assert (report.truncated, report.events, len(report.skipped)) == (2, 2, 1)
        assert store.rescale().skipped == (f"stream {bad:016x}: an odd row",)
        assert {(each.name, each.task) for each in store.upkeep_failures()} == {("s/y", "retain"), ("s/y", "scale")}
        with pytest.raises(ZeroDivisionError):
            store.retain("s/y")  # who asks for one stream is told
        monkeypatch.undo()
        assert store.retain().events == 1
        assert store.rescale().skipped == ()
        assert store.upkeep_failures() == []


def test_an_error_of_progress_stops_the_work_and_is_not_recorded(odd: Store) -> None:
    class Enough(Exception):
        pass

    def tell(what: str, done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        odd.compact(force=True, progress=tell)
    assert odd.upkeep_failures() == []


def test_all_steps_run_even_if_one_fails() -> None:
    taken: list[int] = []

    def failing(number: int) -> None:
        taken.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        isolation.run_all((lambda: failing(1), lambda: taken.append(2), lambda: failing(3)))
    assert taken == [1, 2, 3]


def test_an_archive_of_such_a_stream_is_refused_with_the_column(odd: Store, tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match=r"v: decimal128\(5, -2\).*can't be stored as Parquet"):
        odd.archives.create("i/odd", tmp_path / "archive")


def test_background_upkeep_gets_past_a_failing_stream(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("i")
        make_odd(store, "i/odd")
        fill(store, "i/fine")
    settings = Settings(maintenance_s=0.01, manifest_s=0.001)
    with ab.connect(tmp_path / "store", runtime=runtime_by(Later(), settings=settings), create=True) as store:
        until(lambda: tiers(store)["i/fine"] == {"parquet"})
        until(lambda: len(list(store.blobs.list("manifests/"))) > 0)
        until(lambda: [each.name for each in store.upkeep_failures()] == ["i/odd"])


class Later(SystemClock):
    """So late that all that was written until now is old enough to be compacted."""

    def now(self) -> Micros:
        return Micros(super().now() + 2 * limits.COMPACT_AGE_US)


def clocked(folder: Path, clock: ManualClock, **settings: float) -> Store:
    """A store in a folder with a clock that is moved by hand."""
    chosen = replace(Settings(), **settings)  # type: ignore[arg-type]
    made = ab.connect(folder / "store", runtime=runtime_by(clock, settings=chosen), create=True)
    made.scopes.create("s")
    return made


@pytest.mark.parametrize("place", ["sqlite", "postgres+memory"])
def test_a_lost_connection_stops_upkeep_of_the_whole_store(tmp_path: Path, place: str) -> None:
    """There the driver's own errors are seen: the store's are raised when the transaction is left."""
    errors = {"sqlite": apsw.IOError("disk I/O error"), "postgres+memory": psycopg.OperationalError("no connection")}
    lost = errors[place]
    with store_at(place, tmp_path) as store:
        guarding = isolation.Isolation(store.catalog, store.runtime, "compact", background=False)
        assert guarding.is_fatal(lost)
        assert not guarding.is_fatal(ValueError("a damaged row"))
        with pytest.raises(type(lost)), guarding.guard(StreamId(1)):
            raise lost
        assert guarding.failed == []
