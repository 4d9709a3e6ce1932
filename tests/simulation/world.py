"""A simulated world: durable state that survives crashes, and processes of the real store that do not.

    world = World(seed=7)
    with world:
        def story() -> None:
            first = world.process("first")
            first.call(lambda store: store.scopes.create("s"))
            first.crash()
            world.process("second").call(lambda store: ...)
        world.run(story)

The catalog is the real SQLite adapter on one folder, with a connection and file locks of its own for each process;
blobs are in a folder too, or with `bucket` in a simulated bucket under the real adapter for object stores; with
`encrypted`, everything is encrypted. Both are behind the process's gate. A crash unwinds every task of the process,
rolls its transaction back, and closes its files as the end of a process does. A power cut (`World.power_cut`) crashes
all processes at one moment and removes what they had not synced; see `disk`.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import apsw

from anabranch.blobs import local, objects
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.testing.faults import Faults
from anabranch.testing.faulty_ports import FaultyCatalog
from tests.simulation.bucket import Bucket
from tests.simulation.disk import Disk
from tests.simulation.gate import SimBlobs, SimGate
from tests.simulation.ports import SimClock, SimIds, SimTasks
from tests.simulation.scheduler import Group, Scheduler, SimTask

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["Process", "ProcessCrashed", "World"]

T = TypeVar("T")
_WRONG_US: Final = 3 * 24 * 3600 * 1_000_000  # how far the wall clocks of processes may be ahead or behind


class ProcessCrashed(Exception):
    """The process died while it worked for the caller: the requested work may or may not have been done."""


class World:
    """Everything a seed determines. A context manager, which removes the world's folder at its end."""

    def __init__(
        self,
        seed: int,
        *,
        settings: Settings | None = None,
        scheduler: Scheduler | None = None,
        bucket: Bucket | None = None,
        encrypted: bool = False,
    ) -> None:
        self.seed = seed
        self.bucket = bucket
        self.encrypted = encrypted
        self.scheduler = scheduler or Scheduler(seed)
        self.rng = self.scheduler.rng
        self.settings = settings or Settings()
        self.processes: list[Process] = []
        # A folder in memory, if available: a simulated crash ends the process, never the kernel's pages.
        shared = "/dev/shm"
        self.folder = Path(
            tempfile.mkdtemp(prefix="anabranch-sim-", dir=shared if os.access(shared, os.W_OK) else None)
        )
        self.group = self.scheduler.group("outside")  # for what outlives any process: a request still under way
        self.disk = Disk(self.folder, self.rng)
        self.blobs = self._blobs()
        self._open = ExitStack()

    def _blobs(self) -> Blobs:
        return self.folder_blobs("blobs")

    def folder_blobs(self, name: str) -> Blobs:
        """Returns blobs in a folder of the world."""
        return LocalBlobs(self.folder / name, Runtime(tasks=SimTasks(self.scheduler, None)))

    def all_blobs(self) -> dict[str, bytes]:
        """Returns all the store's blobs as of now, by key."""
        if self.bucket is not None:
            return self.bucket.bodies()
        root = self.folder / "blobs"
        files = sorted(path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}

    def elsewhere(self, store: Store) -> Elsewhere:
        """Returns other storage for the process of a store."""
        return Elsewhere(next(each for each in self.processes if vars(each).get("store") is store))

    def __enter__(self) -> World:
        self._open.enter_context(self.disk.under(local))
        if self.bucket is not None:
            self._open.enter_context(self.bucket.under(objects))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, story: Callable[[], None]) -> None:
        """Runs the story as the world's main task; see `Scheduler.run`. Processes that are still alive end with it."""
        # When the cyclic garbage collector runs depends on everything before, and finalizers may call ports.
        gc.disable()
        try:
            self.scheduler.run(story)
        finally:
            gc.enable()

    def process(self, name: str, *, faults: Faults | None = None, skew_us: int = 0) -> Process:
        """Starts a process with a store of its own over the durable state, which sees the catalog's clock `skew_us` ahead
        of the world's. Call it from the world's own tasks. Raises ProcessCrashed if its faults kill it while it opens."""
        process = Process(self, name, len(self.processes), faults, skew_us)
        self.processes.append(process)
        process.open()
        return process

    def power_cut(self) -> None:
        """Crashes all processes at one moment. What they had not synced by then is lost, or part of it."""
        left = self.disk.image()
        for process in self.processes:
            process.crash()
        self.disk.cut(left)
        self.blobs = self._blobs()  # the memory maps of files ended with the processes

    def sleep(self, seconds: float) -> None:
        """Waits in virtual time, in a task of the world."""
        self.scheduler.park("sleep", timeout=seconds)

    def join(self, task: SimTask, timeout: float | None = None) -> bool:
        """Waits for a task from a task of the world; False after `timeout` virtual seconds."""
        return self.scheduler.join(task, timeout, self.scheduler.enter().group)


class Process:
    """A process of the world: tasks that die together around one store."""

    def __init__(self, world: World, name: str, number: int, faults: Faults | None, skew_us: int) -> None:
        self.world = world
        self.name = name
        self.number = number
        scheduler = world.scheduler
        self.group = scheduler.group(f"{name}.{number}")
        self.gate = SimGate(scheduler, self.group, faults, outside=world.group)
        self.clock = SimClock(scheduler, skew_us)
        self.runtime = Runtime(
            # Its own wall clock is right, or days ahead or behind: nothing may depend on it.
            clock=SimClock(scheduler, (number % 3 - 1) * _WRONG_US),
            catalog_clock=self.clock,
            ids=SimIds(f"{world.seed}/{name}/{number}"),
            tasks=SimTasks(scheduler, self.group),
            settings=world.settings,
            process=name,
        )
        self.store: Store

    @property
    def alive(self) -> bool:
        """False once it crashed."""
        return not self.group.dead

    def open(self) -> None:
        """Creates the store, in a task of this process."""
        self._run("open", self._compose)

    def _compose(self) -> None:
        catalog = _MortalCatalog(self.world.folder, self.runtime, self.group, self.world.disk.vfs)
        self.store = self.compose(FaultyCatalog(catalog, self.gate), self._blobs())
        self.runtime = self.store.runtime

    def compose(self, catalog: Catalog, blobs: Blobs) -> Store:
        """Creates a store over these, in this process. The master key that wraps new data keys differs from process
        to process."""
        from anabranch.blobs.envelope import Envelope
        from anabranch.log.keyring import open_keyring
        from anabranch.runtime.keys import MasterKeys
        from anabranch.store import Store

        runtime, keyring = self.runtime, None
        if self.world.encrypted:
            names = ("odd", "even") if self.number % 2 else ("even", "odd")
            service = MasterKeys({name: name.encode().ljust(32) for name in names}, runtime.ids)
            keyring = open_keyring(catalog, service, runtime)
            runtime = replace(runtime, sealer=Envelope(keyring, runtime.ids))
        store = Store(catalog=catalog, blobs=blobs, runtime=runtime, keyring=keyring)
        # The interpreter that runs the simulation must not close the store of a simulated process when it exits.
        self.group.on_dead.append(partial(atexit.unregister, store._at_exit))
        return store

    def beside(self, name: str) -> Store:
        """Returns a second store in this process, as durable as the first, behind the same gate. Call it from a task
        of the process."""
        folder = self.world.folder / name
        folder.mkdir(exist_ok=True)
        catalog = _MortalCatalog(folder, self.runtime, self.group, self.world.disk.vfs)
        return self.compose(
            FaultyCatalog(catalog, self.gate), SimBlobs(self.world.folder_blobs(f"{name}/blobs"), self.gate)
        )

    def _blobs(self) -> Blobs:
        if self.world.bucket is not None:
            return self.world.bucket.blobs(self.runtime, self.gate)
        return SimBlobs(self.world.blobs, self.gate)

    def spawn(self, name: str, work: Callable[[Store], None]) -> SimTask:
        """Runs `work` concurrently with the caller in this process."""
        return self.world.scheduler.spawn(name, lambda: work(self.store), self.group)

    def call(self, work: Callable[[Store], T], name: str = "call") -> T:
        """Runs `work` as a task of this process, and returns or raises its result. Raises ProcessCrashed if the
        process died first."""
        return self._run(name, lambda: work(self.store))

    def _run(self, name: str, work: Callable[[], T]) -> T:
        if not self.alive:
            raise ProcessCrashed(self.group.name)
        results: list[T] = []
        errors: list[Exception] = []

        def body() -> None:
            try:
                results.append(work())
            except Exception as exc:
                errors.append(exc)

        self.world.join(self.world.scheduler.spawn(name, body, self.group))
        # A task that finished just before its process died has answered: only a missing answer is a crash.
        if errors and self.alive:
            raise errors[0]
        if not results:
            raise ProcessCrashed(self.group.name)
        return results[0]

    def crash(self) -> None:
        """Kills it, from outside, at whatever switching points its tasks are."""
        self.world.scheduler.crash(self.group)

    def close(self) -> None:
        """Closes the store in good order and ends the process."""
        self.call(lambda store: store.close(), "close")
        self.crash()  # nothing can be lost now: this ends what the store may have left running


class Elsewhere:
    """`clients.Elsewhere` of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def place(self, name: str) -> Blobs:
        """See the protocol."""
        return SimBlobs(self._process.world.folder_blobs(name), self._process.gate)

    def memory(self) -> Blobs:
        """See the protocol."""
        return SimBlobs(MemoryBlobs(), self._process.gate)

    def photograph(self) -> Blobs:
        """See the protocol."""
        copy = MemoryBlobs()
        for key, body in self._process.world.all_blobs().items():
            copy.put(key, [body])
        return SimBlobs(copy, self._process.gate)

    def catalog(self) -> Catalog:
        """See the protocol."""
        return FaultyCatalog(SqliteCatalog(None, self._process.runtime), self._process.gate)

    def open(self, catalog: Catalog, blobs: Blobs) -> Store:
        """See the protocol."""
        return self._process.compose(catalog, blobs)


class _MortalCatalog(SqliteCatalog):
    """The SQLite catalog of a process that may die, even while it opens."""

    def __init__(self, folder: Path, runtime: Runtime, group: Group, vfs: str) -> None:
        group.on_dead.append(self._abandon)
        super().__init__(folder, runtime, vfs=vfs)

    def _abandon(self) -> None:
        """Releases what the operating system would release at a process's end: connections and file locks."""
        have = vars(self)
        if have.get("_closed"):
            return
        self._closed = True
        for database in (*have.get("_pool", ()), have.get("_version_watch"), have.get("_database")):
            if database is not None:
                database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a killed process does not checkpoint either
                database.close()
        if have.get("_file_lock") is not None:
            have["_file_lock"].close()
