"""What others test their adapters with: ports that fail as a plan says, and a clock that a test moves."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import AppendUncertain, DiskFull, StoreUnavailable
from anabranch.model.stream import Scope
from anabranch.runtime.ports import Runtime
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from anabranch.testing.contracts import BlobContract
from anabranch.testing.faults import Action, FaultAt, FaultPlan, Faults, Gate, RandomFaults, SimulatedCrash
from anabranch.testing.faulty_ports import FaultyBlobs, FaultyCatalog
from tests.contracts.catalog.appends import AppendContract
from tests.contracts.catalog.transactions import CatalogContract
from tests.store.helpers import bodies_of
from tests.waiting import until

KEY = "commits/0000000000000001-00000000000000000000000a.arrow"


class TestBlobsWithoutFaults(BlobContract):
    def make(self) -> FaultyBlobs:
        return FaultyBlobs(MemoryBlobs(), Gate())


class TestCatalogWithoutFaults(CatalogContract):
    def make(self) -> FaultyCatalog:
        return FaultyCatalog(SqliteCatalog(None, Runtime()), Gate())


class TestAppendsWithoutFaults(AppendContract):
    def make(self) -> FaultyCatalog:
        return FaultyCatalog(SqliteCatalog(None, Runtime()), Gate())


def faulty(faults: Faults) -> tuple[MemoryBlobs, FaultyBlobs]:
    """Blobs, and the same behind a gate."""
    inner = MemoryBlobs()
    return inner, FaultyBlobs(inner, Gate(faults))


@pytest.mark.parametrize(
    ("action", "error", "stored"),
    [
        (Action.PASS, None, True),
        (Action.DELAY_BEFORE, None, True),
        (Action.UNCERTAIN_LANDED, StoreUnavailable, True),
        (Action.UNCERTAIN_LOST, StoreUnavailable, False),
        (Action.CRASH_BEFORE, SimulatedCrash, False),
        (Action.CRASH_AFTER, SimulatedCrash, True),
    ],
)
def test_a_put_fails_as_planned(action: Action, error: type[BaseException] | None, stored: bool) -> None:
    inner, blobs = faulty(FaultAt(1, action))
    if error is None:
        blobs.put(KEY, [b"abc"])
    else:
        with pytest.raises(error):
            blobs.put(KEY, [b"abc"])
    assert (inner.size(KEY) == 3) is stored


def test_a_put_that_is_late_lands_after_its_caller_got_the_error() -> None:
    inner, blobs = faulty(FaultAt(1, Action.UNCERTAIN_LATE))
    with pytest.raises(StoreUnavailable):
        blobs.put(KEY, [b"abc"])
    until(lambda: inner.size(KEY) == 3)


def test_a_put_may_be_cut_in_the_middle(tmp_path: Path) -> None:
    inner = LocalBlobs(tmp_path, Runtime())
    with pytest.raises(SimulatedCrash):
        FaultyBlobs(inner, Gate(FaultAt(1, Action.CRASH_MIDWAY))).put(KEY, [b"abc", b"def"])
    assert inner.get(KEY).to_pybytes() == b"abc"


def test_a_process_that_crashed_does_nothing_more() -> None:
    gate, inner = Gate(FaultAt(2, Action.CRASH_BEFORE)), MemoryBlobs()
    blobs, catalog = FaultyBlobs(inner, gate), FaultyCatalog(SqliteCatalog(None, Runtime()), gate)
    blobs.put(KEY, [b"abc"])
    with pytest.raises(SimulatedCrash):
        blobs.delete(KEY)
    with pytest.raises(SimulatedCrash):
        catalog.token()
    assert inner.size(KEY) == 3 and gate.crashed
    assert gate.calls == ["blobs.put", "blobs.delete"]


def test_a_plan_strikes_the_named_calls_in_their_order() -> None:
    plan = FaultPlan()
    _, blobs = faulty(plan)
    plan.add("blobs.size", DiskFull("no space is left"), times=2, after=1)
    plan.add("blobs.size", Action.UNCERTAIN_LANDED)
    assert blobs.size(KEY) is None and plan.left == 3
    for error in (DiskFull, DiskFull, StoreUnavailable):
        with pytest.raises(error):
            blobs.size(KEY)
    assert blobs.size(KEY) is None and plan.left == 0
    blobs.put(KEY, [b""])  # another method meets no fault


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST, Action.DUPLICATE])
def test_an_append_whose_answer_is_lost_is_stored_once(action: Action) -> None:
    plan, runtime = FaultPlan(), Runtime()
    gate = Gate(plan, runtime=runtime)
    with Store(FaultyCatalog(SqliteCatalog(None, runtime), gate), FaultyBlobs(MemoryBlobs(), gate), runtime) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        plan.add("catalog.commit", action)
        with store.writer("s/a") as writer:
            assert writer.write(b"0", key="k").result().offset == 0
        assert plan.left == 0 and bodies_of(store, "s/a") == [b"0"]


def test_a_transaction_of_unknown_outcome_took_place_or_not() -> None:
    plan = FaultPlan()
    inner = SqliteCatalog(None, Runtime())
    catalog = FaultyCatalog(inner, Gate(plan))
    for name, action in (("landed", Action.UNCERTAIN_LANDED), ("lost", Action.UNCERTAIN_LOST)):
        plan.add("writing.commit", action)
        with pytest.raises(AppendUncertain), catalog.writing() as txn:
            txn.put_scope(Scope(name, {}, ManualClock().now()))
    plan.add("catalog.writing", Action.UNCERTAIN_LOST)
    with pytest.raises(StoreUnavailable), catalog.writing():
        pytest.fail("the catalog is away")
    with inner.reading() as reading:
        assert [scope.name for scope in reading.scopes()] == ["landed"]


def test_random_faults_come_at_their_rates_from_one_seed() -> None:
    def run() -> list[bool]:
        _, blobs = faulty(RandomFaults(random.Random(7), {}, {"blobs.size": {Action.UNCERTAIN_LANDED: 0.5}}))
        blobs.put(KEY, [pa.py_buffer(b"abc")])
        failed = []
        for _ in range(50):
            try:
                blobs.size(KEY)
            except StoreUnavailable:
                failed.append(True)
            else:
                failed.append(False)
        return failed

    assert run() == run()
    assert 10 < sum(run()) < 40


def test_a_clock_moves_only_when_it_is_moved() -> None:
    clock = ManualClock(5_000_000)
    assert (clock.now(), clock.monotonic()) == (5_000_000, 5.0)
    clock.pass_time(1_500_000)
    assert (clock.now(), clock.monotonic()) == (6_500_000, 6.5)
