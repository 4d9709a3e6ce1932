"""A while of torture on every place: nothing is violated. Where a copy is too short, its judge says so."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.model.cut import StreamCut
from tests.simulation.ledger import Ledger
from tests.simulation.planted_faults.algebra import copy_all_but_the_last_event
from tests.simulation.planted_faults.groups import leave_the_position_out_of_the_unit
from tests.waiting import until
from torture import share, transact, trim
from torture.__main__ import _hard_end, _progress
from torture.child import Child, Log
from torture.conductor import Report, Run
from torture.disk import SmallDisk
from torture.location import STREAMS, StoreLocation
from torture.shuffle import copy
from torture.store_kinds import NAMES, place
from torture.stream_logs import StreamLogs
from torture.transfers import TakenOver

pytestmark = [pytest.mark.process, pytest.mark.chaos]

# ./dev torture runs for longer.
_RUNS = [("sqlite", 5.0), *(pytest.param(name, 20.0, marks=pytest.mark.slow) for name in NAMES)]
Plant = Callable[[], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def leases_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torture shortens them in whichever process opens its store, this one too."""
    monkeypatch.setattr(limits, "LEASE_US", limits.LEASE_US)


@pytest.mark.parametrize(("name", "seconds"), _RUNS)
def test_nothing_acknowledged_is_lost_doubled_or_reordered(
    tmp_path: Path, name: str, seconds: float, seed: int
) -> None:
    with place(name, tmp_path) as (there, servers):
        report = Run(name, there, tmp_path, seed, servers).run(seconds, _silent)
    assert report.violations == [], f"seed {seed}: {report}"
    assert report.counts["acknowledged events"] > 0
    assert sum(report.faults.values()) > 0


def _silent(report: Report) -> None:
    pass


def _copied(log: Log, place: StoreLocation, stop: Path, plant: Plant) -> None:
    with plant(), place.open(0) as store:
        copy(log, stop, store, STREAMS[0], "copier-1")


@pytest.mark.parametrize("plant", [nullcontext, copy_all_but_the_last_event])
def test_a_copy_that_ends_before_its_cut_is_reported(tmp_path: Path, plant: Plant) -> None:
    there, stop = StoreLocation(str(tmp_path / "river")), tmp_path / "stop"
    with there.open(0) as store:
        store.scopes.create("t")
        for stream in STREAMS:
            store.streams.create(stream)
            with store.writer(stream) as writer:
                for number in range(3):
                    writer.write(b"%d" % number, key="k").result()
    child = Child(tmp_path, "copier", _copied, there, stop, plant)
    until(lambda: not child.alive)
    assert [words[0] for words in child.lines()][-1] == "done"
    with there.open(0) as store:
        ledgers = {stream: Ledger(stream) for stream in STREAMS}
        wrong = TakenOver(store, [StreamLogs(stream) for stream in STREAMS], ledgers, [child]).wrong
    assert any("the result of the copy names the end" in text for text in wrong) == (plant is not nullcontext), wrong


def _shared(log: Log, place: StoreLocation, stop: Path, plant: Plant) -> None:
    with plant():
        share.share(log, place, stop, "share-1", seed=1)


@pytest.mark.parametrize("plant", [nullcontext, leave_the_position_out_of_the_unit])
def test_a_unit_of_a_group_without_its_position_is_reported(tmp_path: Path, plant: Plant) -> None:
    there, stop = StoreLocation(str(tmp_path / "river")), tmp_path / "stop"
    with there.open(0) as store:
        store.scopes.create("t")
        for stream in (share.SOURCE, share.MADE):
            store.streams.create(stream)
        # Readers that tell their positions while they read would hide the fault now and then, just ahead of the kill.
        store.groups.open(share.GROUP, streams=[share.SOURCE], lease_s=600, refresh_s=60)
        with store.writer(share.SOURCE) as writer:
            for number in range(200):
                writer.write(b"%d" % number, key="k")
    child = Child(tmp_path, "sharer", _shared, there, stop, plant)
    until(lambda: not child.alive)
    assert [words for _, *words in child.lines()][-1] == ["kill", "-9", "behind", "a", "unit"]
    with there.open(0) as store:
        for reader in share.READERS:
            store.groups.open(share.GROUP).reader_offline(reader)
        assert bool(share.wrong(store, Counter())) == (plant is not nullcontext)


@pytest.mark.slow
def test_a_disk_that_holds_nothing_yet_can_be_full_and_has_room_again(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk")
    room = shutil.disk_usage(disk.folder).total
    for fill in disk.faults().values():  # none without the right to mount
        for seed in range(4):
            fill(random.Random(seed))
            assert shutil.disk_usage(disk.folder).total == room
    disk.close()


def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="did not end within 0 s"), _hard_end(0.1):
        until(lambda: False)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_without_a_terminal_each_phase_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show = _progress()
    for phase in ("starting", "torture", "torture", "judging"):
        show(Report("sqlite", 1, phase))
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "sqlite: starting",
        "sqlite: torture",
        "sqlite: judging",
    ]


# the judges, given wrong records


class Lines:
    """What a process might have told."""

    def __init__(self, *lines: list[str]) -> None:
        self._lines = lines

    def lines(self) -> Iterator[list[str]]:
        return iter(self._lines)


def lines(*told: list[str]) -> list[Child]:
    return [cast(Child, Lines(*told))]


@pytest.fixture
def store() -> Iterator[ab.Store]:
    with ab.connect("memory://") as made:
        made.scopes.create("t")
        for stream in (*transact.STREAMS, share.MADE, trim.STREAM):
            made.streams.create(stream)
        yield made


def test_what_a_group_makes_twice_or_out_of_order_is_reported(store: ab.Store) -> None:
    store.groups.open(share.GROUP, streams=[share.SOURCE], lease_s=0.2)
    with store.writer(share.SOURCE) as writer:
        writer.write(b"1", key="k").result()
    assert share.wrong(store, Counter()) == []
    with store.writer(share.MADE) as writer:
        writer.write(b"1", key="k").result()
    assert "made 2" in share.wrong(store, Counter())[0]


def test_a_transaction_that_differs_from_its_record_is_reported(store: ab.Store) -> None:
    txn = store.transaction()
    for stream in transact.STREAMS:
        txn.writer(stream).write(b"w|0|0", key="k")
    txn.commit()
    begun = ["begun", txn.id, "w|0", "1"]
    assert transact.wrong(store, lines(begun, ["committed", txn.id]), Counter()) == []
    assert transact.wrong(store, lines(begun, ["aborted", txn.id]), Counter())
    assert transact.wrong(store, lines(["begun", txn.id, "w|0", "2"]), Counter())
    with store.writer(transact.STREAMS[0]) as writer:
        writer.write(b"w|0|0", key="k").result()
    assert any("has [0, 0]" in text for text in transact.wrong(store, lines(begun), Counter()))
    with store.writer(transact.STREAMS[1]) as writer:
        writer.write(b"w|7|0", key="k").result()
    assert any("w|7 was never begun" in text for text in transact.wrong(store, lines(begun), Counter()))


def test_a_truncation_that_takes_too_much_or_too_little_is_reported(store: ab.Store) -> None:
    with store.writer(trim.STREAM) as writer:
        wrote = [["wrote", f"{i}", str(writer.write(b"%d" % i, key="k").result())] for i in range(4)]
    with store.reader(trim.STREAM) as reader:
        cuts = [str(reader.position) for _ in reader]
    store.streams.truncate(trim.STREAM, StreamCut.parse(cuts[1]))
    assert trim.wrong(store, lines(*wrote, ["asked", cuts[1]], ["cut", cuts[1]]), Counter()) == []
    assert trim.wrong(store, lines(*wrote, ["asked", cuts[2]]), Counter()) == []
    assert any("was asked for" in text for text in trim.wrong(store, lines(*wrote, ["asked", cuts[0]]), Counter()))
    assert any("was answered" in text for text in trim.wrong(store, lines(*wrote, ["cut", cuts[2]]), Counter()))
    lost = [["wrote", "9", wrote[3][2]], ["asked", cuts[1]]]
    assert any("not 9" in text for text in trim.wrong(store, lines(*lost), Counter()))
