"""The path of an event: each stage knows only those behind it, and nothing behind a writer refers back to it."""

from __future__ import annotations

import ast
from pathlib import Path
from types import FunctionType, MethodType

import anabranch as ab
from anabranch.writing import writer as writer_module
from anabranch.writing.writer import Writer

FOLDER = Path(writer_module.__file__).parent

# The stages in order, the last one first: none imports one that comes later in this list.
STAGES = (
    "acknowledgement",
    "pending_batch",
    "chunk",
    "chunk_buffer",
    "routes",
    "progress",
    "router",
    "table_batches",
    "in_flight",
    "queue",
    "large_events",
    "writer",
    "byte_writer",
)


def imported(stage: str) -> set[str]:
    """The modules of this package that a module of it imports."""
    prefix = "anabranch.writing."
    found = ast.walk(ast.parse((FOLDER / f"{stage}.py").read_text()))
    return {
        node.module.removeprefix(prefix)
        for node in found
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(prefix)
    }


def test_no_stage_imports_one_that_comes_before_it_on_the_path() -> None:
    for number, stage in enumerate(STAGES):
        assert imported(stage) & set(STAGES) <= set(STAGES[:number]), stage


def test_nothing_behind_a_writer_refers_back_to_it() -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        writer = store.writer("s/a")
        writer.write(b"1").result()
        held = reachable(writer._queue)
        assert {writer._buffer, writer._router} <= held
        assert not any(isinstance(each, Writer) for each in held)


def reachable(start: object) -> set[object]:
    """The objects of this package, and callables, that an object leads to by its attributes."""
    found: set[object] = set()
    left = [start]
    while left:
        each = left.pop()
        if isinstance(each, MethodType):
            left += [each.__self__]
        elif isinstance(each, FunctionType):
            left += [cell.cell_contents for cell in each.__closure__ or ()]
        elif type(each).__module__.startswith("anabranch.writing") and each not in found:
            found.add(each)
            left += vars(each).values() if hasattr(each, "__dict__") else ()
    return found
