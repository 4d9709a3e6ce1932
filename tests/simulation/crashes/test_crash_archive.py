"""A crash at every port call of an archive, an import and an attachment, the calls of the archive's place among them.

An archive is whole or recognisably unfinished, and goes on when it is asked for again. What is imported or attached is
there whole or not at all, and what a crash leaves behind is collected.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.port import Blobs
from anabranch.errors import AnabranchError, AppendUncertain, StoreUnavailable
from anabranch.runtime.ports import Runtime
from anabranch.store import Store, archives, facade
from anabranch.testing.faults import Action, FaultAt, Faults, NoFaults
from anabranch.transfer.archives.format import METADATA
from tests.simulation.clients import checked
from tests.simulation.crashes.calls import crashes, some_or_every_crash
from tests.simulation.gate import SimBlobs
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, ProcessCrashed, World

pytestmark = pytest.mark.sim

HELD = {"t/raw": 3, "t/sensors": 5}
Verb = Callable[[Store, Path], object]


def archive(store: Store, place: Path) -> object:
    return store.archives.create("s/a", place, request="r").digest


def archive_scope(store: Store, place: Path) -> object:
    return store.archives.create_scope("s", place, request="r").digest


def import_(store: Store, place: Path) -> object:
    return store.archives.import_(place, as_="t", request="r")


def attach(store: Store, place: Path) -> object:
    return store.archives.attach(place, "t", request="r")


def prepare(store: Store) -> None:
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)
    with store.writer("s/a") as writer:
        for n in range(4):
            writer.write(b"%d" % n + b" " * 300 * (n % 2), key="ab"[n % 2]).result()
        store.streams.scale("s/a", 1)
        writer.write(b"last", key="a").result()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two streams, one of them sealed."""
    place = tmp_path_factory.mktemp("archives") / "kept"
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        for name, count in HELD.items():
            store.streams.create(name.replace("t/", "s/"))
            with store.writer(name.replace("t/", "s/")) as writer:
                for n in range(count):
                    writer.write(b"%d" % n, key="a").result()
        store.streams.seal("s/raw")
        store.archives.create_scope("s", place)
    return place


def names(store: Store) -> list[str]:
    return [str(info.name) for info in store.streams.list()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], World]]:
    """Makes worlds in which the places of archives stand behind the gates of the processes that open them."""
    made: list[World] = []

    def open_location(place: str, runtime: Runtime, *, create: bool, read_once: bool = False) -> Blobs:
        (process,) = (each for each in made[-1].processes if each.runtime is runtime)
        real = LocalBlobs(Path(place), runtime)
        return SimBlobs(real, process.gate)

    monkeypatch.setattr(limits, "ARCHIVE_FILE_BYTES_MAX", 500)  # so that a block of the digest lies in several files
    for module in (archives, facade):
        monkeypatch.setattr(module, "open_blobs", open_location)

    def build() -> World:
        made.append(World(1, settings=SETTINGS))
        return made[-1]

    with tight_limits():
        yield build


def tell(
    world: World, verb: Verb, place: Path, faults: Faults, judge: Callable[[Store, bool], None]
) -> tuple[Process | None, bool]:
    """Let a process do it, and another one judge what that left, knowing whether it was answered. The actor, and whether
    it died."""
    actors: list[Process] = []
    died = []

    def story() -> None:
        if verb not in (import_, attach):
            first = world.process("first")
            first.call(prepare)
            first.close()
        answered = False
        try:
            actor = world.process("actor", faults=faults)
            actors.append(actor)
            actor.call(lambda store: verb(store, place))
            answered = True
            actor.crash()
        except ProcessCrashed:
            died.append(True)
        survivor = world.process("survivor")
        survivor.call(lambda store: judge(store, answered))
        survivor.close()

    with world:
        world.run(story)
    return (actors[0] if actors else None), bool(died)


def go_on(store: Store) -> None:
    """Go on with what the dead has left."""
    for row in store.jobs.list():
        if not row.state.ended:
            store.jobs.resume(row.id, take_over=True).wait()


def judge_archive(verb: Verb, store: Store, place: Path, answered: bool) -> None:
    try:
        ab.read_archive(place, runtime=store.runtime)
        whole = True
    except AnabranchError:
        whole = False
    assert whole or not answered
    go_on(store)
    before = verb(store, place)
    assert verb(store, place) == before
    assert list(ab.verify_archive(place, runtime=store.runtime)) == []
    if verb is archive:
        store.scopes.create("u")
    store.archives.import_(place, as_="u/a" if verb is archive else "u")
    assert store.archives.digest("u/a") == store.archives.digest("s/a")
    assert checked(store) == []


def judge_streams(verb: Verb, store: Store, place: Path, answered: bool) -> None:
    there = names(store)
    assert set(there) <= {"t/raw", "t/sensors"}
    assert not answered or len(there) == 2
    for name in there:
        with store.reader(name) as reader:
            assert len(list(reader)) == HELD[name]
    for _ in range(2):  # what a job has staged is spared
        store.collect(horizon_us=0)
    go_on(store)
    answer = verb(store, place)
    assert verb(store, place) == answer
    assert names(store) == ["t/raw", "t/sensors"]
    assert [str(info.name) for info in store.streams.list(internal=True)] == names(store)
    if there:
        assert checked(store) == []
    for name in ("t/raw", "t/sensors"):
        store.streams.delete(name)
    with store.catalog.writing() as txn:  # as in time, when those of the dead run out
        for lease in txn.leases():
            txn.drop_lease(lease.id)
    for _ in range(3):
        store.runtime.tasks.sleep(1)
        store.collect(horizon_us=0)
    with store.catalog.reading() as txn:
        used = {str(row[0]) for row in txn.export("blobs")}
    assert {info.key for info in store.blobs.list("history/")} <= used
    assert not [key for key in used if key.startswith(("attached", "footers"))]
    assert checked(store) == []


ARCHIVES: tuple[Verb, ...] = (archive, archive_scope)
VERBS: tuple[Verb, ...] = (*ARCHIVES, import_, attach)


@some_or_every_crash
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_crash_at_any_call_leaves_nothing_half_done(
    verb: Verb, every: bool, world: Callable[[], World], kept: Path, tmp_path: Path
) -> None:
    place = tmp_path / "archive" if verb in ARCHIVES else kept

    def judge(store: Store, answered: bool) -> None:
        if verb in ARCHIVES:
            judge_archive(verb, store, place, answered)
        else:
            judge_streams(verb, store, place, answered)

    actor, _ = tell(world(), verb, place, NoFaults(), judge)
    assert actor is not None
    calls = list(actor.gate.calls)
    assert len(calls) > 10
    for number, action in crashes(calls, every=every):
        shutil.rmtree(tmp_path / "archive", ignore_errors=True)
        _, died = tell(world(), verb, place, FaultAt(number, action), judge)
        assert died, (number, calls[number - 1], action)


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
@pytest.mark.parametrize("verb", [import_, attach], ids=lambda verb: verb.__name__)
def test_a_lost_answer_is_found_by_asking_again(
    verb: Verb, action: Action, world: Callable[[], World], kept: Path
) -> None:
    def again(store: Store, place: Path) -> object:
        with suppress(AppendUncertain, StoreUnavailable):
            return verb(store, place)
        return verb(store, place)

    def judge(store: Store, answered: bool) -> None:
        assert answered
        assert [name for name in names(store) if name != "s/a"] == ["t/raw", "t/sensors"]
        assert checked(store) == []

    actor, _ = tell(world(), verb, kept, NoFaults(), judge)
    assert actor is not None
    commits = [number for number, call in enumerate(actor.gate.calls, 1) if call == "writing.commit"]
    assert commits
    for number in commits:
        told, died = tell(world(), again, kept, FaultAt(number, action), judge)
        assert told is not None
        assert not died


def test_the_metadata_is_written_behind_everything_else(world: Callable[[], World], tmp_path: Path) -> None:
    put: list[str] = []

    def watched(store: Store, place: Path) -> object:
        real = SimBlobs.put

        def note(self: SimBlobs, key: str, chunks: object) -> None:
            put.append(key)
            real(self, key, chunks)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimBlobs, "put", note)
            return archive(store, place)

    tell(world(), watched, tmp_path / "archive", NoFaults(), lambda store, answered: None)
    assert put[-1] == METADATA
    assert len(put) > 2
