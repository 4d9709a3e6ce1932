"""Byte streams: writers that fence each other, readers that seek anywhere, and truncation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from anabranch.errors import AlreadyExists, AnabranchError, AppendUncertain, Closed, StoreUnavailable, Truncated
from anabranch.reading.byte_reader import RawByteReader
from tests.simulation.byte_model import ByteModel
from tests.simulation.clients.arena import EXPECTED, PAUSE_S, Arena

if TYPE_CHECKING:
    from anabranch.reading.byte_reader import ByteReader
    from anabranch.store import Store
    from anabranch.writing.byte_writer import ByteWriter

__all__ = ["browse", "scribble"]

_NAMES: Final = ("sim/bytes1", "sim/bytes2")
_STREAM_BYTES_MAX: Final = 40_000  # so that judging stays fast


def scribble(arena: Arena, store: Store, name: str) -> None:
    """Opens byte streams for appending, which fences the present writer; writes pieces of any size, flushes some of
    them, and truncates."""
    for _ in arena.turns(store, 6):
        model = _model(arena)
        least = model.tail
        if least > _STREAM_BYTES_MAX:
            continue
        with suppress(*EXPECTED, AlreadyExists), store.bytes(model.name, "ab") as file:
            session = model.opened(f"{name}.{arena.serial()}", file.tell(), least)
            for _ in range(arena.rng.randrange(1, 8)):
                for _ in range(arena.rng.randrange(1, 4)):
                    data = arena.rng.randbytes(arena.rng.choice((1, 7, 64, 65, 300)))
                    session.data += data  # before writing: even a failed write may be stored in part
                    file.write(data)
                    if file.tell() != session.stop:
                        arena.violations.append(f"{model.name}: its writer is at {file.tell()}, not {session.stop}")
                if arena.chance(0.7):
                    file.flush()
                    model.flushed(session)
                    arena.done["bytes flushed"] += 1
                if arena.chance(0.15):
                    _let_go(arena, model, file)
                    model.flushed(session)
                store.runtime.tasks.sleep(arena.rng.random() * PAUSE_S)


def browse(arena: Arena, store: Store, name: str) -> None:
    """Reads byte streams and copies of them: from anywhere, to the end, or following."""
    for _ in arena.turns(store, 4):
        model = _model(arena)
        with suppress(*EXPECTED):
            if not store.streams.exists(model.name):
                continue
            if arena.chance(0.1):
                _read_copy(arena, store, model)
            elif arena.chance(0.2):
                _follow(arena, store, model, f"{name}.{arena.serial()}")
            else:
                _read(arena, store, model, f"{name}.{arena.serial()}")


def _model(arena: Arena) -> ByteModel:
    models = [ByteModel(name) for name in _NAMES]
    model = arena.rng.choice(arena.shared("byte streams", lambda: models))
    arena.promises[model.name] = partial(_held, model)
    return model


def _let_go(arena: Arena, model: ByteModel, file: ByteWriter) -> None:
    position = arena.rng.randrange(model.head, file.tell() + 1)
    model.asked = max(model.asked, position)
    least = model.head
    model.began(file.truncate_before(position), least, "its writer")
    arena.done["bytes let go"] += 1


def _read(arena: Arena, store: Store, model: ByteModel, name: str) -> None:
    with store.bytes(model.name) as file:
        for _ in range(arena.rng.randrange(1, 6)):
            tail, least = model.tail, model.head
            model.began(file.head(), least, name)
            model.ended(file.tail(), tail, name)
            start = arena.rng.randrange(least, max(least, tail) + 1) if arena.chance(0.7) else model.head
            count = arena.rng.choice((1, 10, 100, 5_000))
            _seek(arena, file, start)
            try:
                data = file.read(count)
            except Truncated:
                if start >= model.asked:
                    arena.violations.append(f"{model.name}: byte {start} was let go, and nobody had asked for that")
                continue
            model.read(start, data, name)
            if len(data) < min(count, tail - start):
                arena.violations.append(f"{model.name}: {len(data)} bytes were read at {start}, of {tail - start}")
            arena.done["bytes read"] += 1


def _seek(arena: Arena, file: ByteReader, start: int) -> None:
    """Seeks in one of the three ways that a file offers."""
    draw = arena.rng.random()
    if draw < 0.6:
        file.seek(start)
    elif draw < 0.8:
        file.seek(start - file.tell(), 1)
    else:
        file.seek(0, 2)
        file.seek(start)


def _follow(arena: Arena, store: Store, model: ByteModel, name: str) -> None:
    """Follows from some position for a while. The raw reader waits: no Python lock may be held meanwhile."""
    with store.bytes(model.name, follow=True) as file:
        raw = cast(RawByteReader, file.raw)
        position = raw.seek(arena.rng.randrange(model.head, model.tail + 1))
        watch = store.runtime.tasks.spawn("stop", lambda: _stop(arena, store, raw))
        buffer = bytearray(150)
        try:
            while count := raw.readinto(buffer):
                model.read(position, bytes(buffer[:count]), name)
                position += count
                arena.done["bytes followed"] += 1
        except (Closed, Truncated, StoreUnavailable):
            pass
    watch.join()


def _stop(arena: Arena, store: Store, raw: RawByteReader) -> None:
    store.runtime.tasks.sleep(arena.rng.random() * 0.1)
    raw.stop()


def _read_copy(arena: Arena, store: Store, model: ByteModel) -> None:
    """A copy holds the same bytes at the same positions, and stays readable when its source is truncated."""
    copy = f"sim/copied{arena.serial()}"
    tail = model.tail
    store.streams.copy(model.name, copy)
    with store.bytes(copy) as file:
        head, data = file.head(), file.read()
    model.read(head, data, copy)
    model.ended(head + len(data), tail, copy)
    with suppress(AppendUncertain):
        store.streams.delete(copy)
    arena.done["bytes copied"] += 1


def _held(model: ByteModel, store: Store) -> Sequence[str]:
    """The content was written by consecutive sessions, and everything flushed is in it."""
    if not store.streams.exists(model.name):
        return [] if not model.sessions else [f"{model.name} is gone"]
    try:
        with store.bytes(model.name) as file:
            head, data = file.head(), file.read()
    except AnabranchError as exc:
        return [f"{model.name} can't be read: {exc!r}"]
    return model.judge(head, data)
