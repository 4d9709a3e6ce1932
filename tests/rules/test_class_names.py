"""No two classes of the package share a name, private ones included: a name in a traceback or a search is one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "anabranch"


def shared_names(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of classes that several modules, given by path with their text, define."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_classes_share_a_name() -> None:
    modules = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    assert modules
    assert shared_names(modules) == {}


def test_a_shared_name_is_found() -> None:
    modules = {"a.py": "class _Run: ...\nclass A: ...", "b.py": "def f():\n    class _Run: ...", "c.py": "class B: ..."}
    assert shared_names(modules) == {"_Run": ["a.py", "b.py"]}
