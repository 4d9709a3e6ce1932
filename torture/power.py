"""A power cut for real processes: removes from the disk what they had not synced, or a part of it.

Killing a process loses nothing that it wrote: the system keeps its pages. So each process records, in a journal apart
from the store, every write and sync of SQLite (through a VFS) and of the folder of blobs (through the functions of
`os`). A power cut kills all processes and rebuilds every file from its content when the journals began: writes before
the last sync began are kept; each later write has reached the disk or has not. A blob that was not synced keeps a
prefix; one whose folder was not synced may be lost. If the catalog is on a server, only the folder of blobs is rebuilt.

A note is recorded after the event that it describes, and before anything that relies on it. So a kill in between loses
only the note of a write that nothing relied on, or of a sync that was not yet reported.
"""

from __future__ import annotations

import marshal
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from anabranch.blobs import local
from tests.simulation.disk import DiskOs

_CATALOG: Final = "catalog.db"
_SYSTEM: Final = "unix"  # explicit, since ours becomes the default
_kept: list[object] = []  # objects that must live as long as the process


class _Note(NamedTuple):
    """`kind`: write, cut (the file was truncated there), sync, delete; new, named, dirty, clean for blobs. Times in
    ns."""

    kind: str
    began: int
    ended: int
    path: str
    offset: int = 0
    data: bytes = b""


class _Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, kind: str, path: str, *, began: int | None = None, offset: int = 0, data: bytes = b"") -> None:
        now = time.monotonic_ns()
        body = marshal.dumps((kind, now if began is None else began, now, path, offset, data))
        os.write(self._file, len(body).to_bytes(4, "little") + body)


def watch(journal: Path) -> None:
    """From now on this process records its writes and syncs."""
    notes = _Journal(journal)
    door = _Vfs("recorded", notes)
    apsw.set_default_vfs("recorded")
    disk = DiskOs(_Table(notes, "new", "named"), _Table(notes, "dirty", "clean"))
    setattr(local, "os", disk)  # noqa: B010 - to the type checker it has no such name
    _kept.extend((notes, door))


class _Table(dict[Path, None]):
    """Paths that are not synced; additions and removals are recorded in the journal."""

    def __init__(self, journal: _Journal, on_add: str, on_remove: str) -> None:
        super().__init__()
        self._journal, self._on_add, self._on_remove = journal, on_add, on_remove

    def __setitem__(self, path: Path, value: None) -> None:
        self._journal.note(self._on_add, str(path))
        super().__setitem__(path, value)

    def __delitem__(self, path: Path) -> None:
        super().__delitem__(path)
        self._journal.note(self._on_remove, str(path))

    def pop(self, path: Path, *default: Any) -> Any:
        if path in self:
            del self[path]


class _Vfs(apsw.VFS):
    """The system's VFS, whose files record their writes and syncs."""

    def __init__(self, name: str, journal: _Journal) -> None:
        super().__init__(name, _SYSTEM)
        self._journal = journal

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - as SQLite calls it
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return apsw.VFSFile(_SYSTEM, name, flags) if path is None else _File(name, flags, path, self._journal)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - as SQLite calls it
        super().xDelete(filename, syncdir)
        self._journal.note("delete", filename)


class _File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], path: str, journal: _Journal) -> None:
        super().__init__(_SYSTEM, name, flags)
        self._path = path
        self._journal = journal

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - as SQLite calls it
        super().xWrite(data, offset)
        self._journal.note("write", self._path, offset=offset, data=bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - as SQLite calls it
        super().xTruncate(newsize)
        self._journal.note("cut", self._path, offset=newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - as SQLite calls it
        began = time.monotonic_ns()
        super().xSync(flags)
        self._journal.note("sync", self._path, began=began)


class Power:
    """The power supply of a folder: a whole store, or the blobs of one. `journals` is the folder of its processes'
    journals."""

    def __init__(self, river: Path, journals: Path) -> None:
        self._river = river
        self._journals = journals
        self._generation = 0
        self._before: dict[str, bytes] = {}

    def restart(self) -> None:
        """Takes the present files as the state on the disk. No process may use the store."""
        self._generation += 1
        self._before = {str(path): path.read_bytes() for path in self._files()}
        self._folder.mkdir(parents=True)

    def journal(self, name: str) -> Path:
        """Returns where a new process records its writes, until the next cut."""
        return self._folder / name

    def cut(self, rng: random.Random) -> None:
        """Removes what was not synced. All processes must have been killed."""
        notes = [list(_read(path)) for path in sorted(self._folder.iterdir())]
        self._cut_catalog(rng, sorted((note for each in notes for note in each), key=lambda note: note.ended))
        for each in notes:
            _cut_blobs(rng, each)
        self.restart()

    @property
    def _folder(self) -> Path:
        return self._journals / f"{self._generation}"

    def _files(self) -> Iterator[Path]:
        return (path for path in sorted(self._river.glob(f"{_CATALOG}*")) if not path.name.endswith("-shm"))

    def _cut_catalog(self, rng: random.Random, notes: list[_Note]) -> None:
        files: dict[str, list[_Note]] = defaultdict(list)
        for note in notes:
            if note.kind == "delete":
                files[note.path].clear()
                self._before.pop(note.path, None)
            elif note.kind in ("write", "cut", "sync"):
                files[note.path].append(note)
        for path, changes in files.items():
            content = _after_cut(rng, self._before.get(path, b""), changes)
            if changes or path in self._before:
                Path(path).write_bytes(content)
        for shared in self._river.glob(f"{_CATALOG}-shm"):
            shared.unlink()


def _after_cut(rng: random.Random, before: bytes, notes: list[_Note]) -> bytes:
    content = bytearray(before)
    synced = max((note.began for note in notes if note.kind == "sync"), default=-1)
    part = rng.choice((0.0, 0.5, 0.9))  # a disk may reorder writes
    for note in notes:
        if note.kind == "sync" or (note.ended > synced and rng.random() >= part):
            continue
        if note.kind == "cut":
            del content[note.offset :]
            continue
        if len(content) < note.offset:
            content.extend(bytes(note.offset - len(content)))
        content[note.offset : note.offset + len(note.data)] = note.data
    return bytes(content)


def _cut_blobs(rng: random.Random, notes: list[_Note]) -> None:
    """Cuts the blobs of one process, which alone syncs them."""
    nameless: dict[str, None] = {}
    dirty: dict[str, None] = {}
    for note in notes:
        match note.kind:
            case "new":
                nameless[note.path] = None
            case "named":
                nameless.pop(note.path, None)
            case "dirty":
                dirty[note.path] = None
            case "clean":
                dirty.pop(note.path, None)
    for path in map(Path, dirty):
        if path.exists():
            os.truncate(path, rng.randrange(path.stat().st_size + 1))
    for path in map(Path, nameless):
        if rng.random() < 0.5:
            path.unlink(missing_ok=True)


def _read(path: Path) -> Iterator[_Note]:
    """Yields a journal's notes; a truncated last one is skipped."""
    whole, at = path.read_bytes(), 0
    while at + 4 <= len(whole):
        stop = at + 4 + int.from_bytes(whole[at : at + 4], "little")
        if stop > len(whole):
            return
        yield _Note(*marshal.loads(whole[at + 4 : stop]))
        at = stop
