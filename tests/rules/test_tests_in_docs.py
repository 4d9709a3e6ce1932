"""Every test that a page names is there: a claim whose proof was moved or deleted is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NAMED = re.compile(r"(?:tests/)?((?:\w+/)*test_\w+\.py)(?:::(\w+))?")


def missing(page: str) -> list[str]:
    """The tests that a text names by file, or by file and function, and that are not there."""
    wrong = []
    for file, function in _NAMED.findall(page):
        path = ROOT / "tests" / file
        if not path.is_file() or (function and f"def {function}(" not in path.read_text()):
            wrong.append(f"{file}::{function}" if function else file)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_a_test_that_is_not_there_is_found() -> None:
    text = "`rules/test_tests_in_docs.py::missing`, `tests/rules/test_gone.py`, `rules/test_tests_in_docs.py::gone`"
    assert missing(text) == ["rules/test_gone.py", "rules/test_tests_in_docs.py::gone"]
