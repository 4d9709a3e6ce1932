"""Every source file and folder that a page names is there: a map that leads nowhere is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "anabranch"
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "GLOSSARY.md", *sorted((ROOT / "docs" / "explanation").glob("*.md"))]
_PATH = re.compile(r"`([\w./]+(?:\.py|\.sql))`|`([\w.]+/[\w./]*/)`")
_FILES = {file.name for suffix in ("py", "sql") for file in SOURCE.rglob(f"*.{suffix}")}


def missing(page: str) -> list[str]:
    """The files and folders that a page names, and that are not there. A file without a folder may be in any."""
    wrong = []
    for file, folder in _PATH.findall(page):
        name = file or folder
        there = any((base / name).exists() for base in (SOURCE, ROOT, ROOT / "tests", ROOT / "docs"))
        if not there and ("/" in name or name not in _FILES):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    assert missing(page.read_text()) == []


def test_a_file_that_is_not_there_is_found() -> None:
    text = "`blobs/port.py`, `src/anabranch/blobs/port.py`, `port.py`, `store/places.py`, `gone.py`, `spark/gone/`"
    assert missing(text) == ["store/places.py", "gone.py", "spark/gone/"]
