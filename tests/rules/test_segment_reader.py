"""Segments are read through `SegmentReader`: no other module plans a read, or decides by itself that a plan is stale."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import anabranch

SOURCE = Path(anabranch.__file__).parent
# What is used, and the modules that use it.
OWNERS = {
    ("anabranch.log.plan", "plan"): {"log/segment_reader.py"},
    ("anabranch.runtime.log_events", "PLAN_STALE"): {"log/plan.py"},
}


def users(module: str, name: str) -> set[str]:
    """The files of the package that import a name from a module."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if module not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == module and name in [a.name for a in node.names]:
                found.add(path.relative_to(SOURCE).as_posix())
    return found


@pytest.mark.parametrize(("module", "name"), OWNERS, ids=[name for _, name in OWNERS])
def test_only_the_segment_reader_plans(module: str, name: str) -> None:
    assert users(module, name) == OWNERS[module, name], "read segments with anabranch.log.segment_reader.SegmentReader"
