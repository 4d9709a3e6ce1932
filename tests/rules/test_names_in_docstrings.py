"""Every attribute of a store that a docstring or a message names as `Store.…` exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from anabranch.store.facade import Store

SOURCE = Path(__file__).parents[2] / "src" / "anabranch"
_NAMED = re.compile(r"\bStore\.([a-z]\w+)")
_KNOWN = {*dir(Store), *re.findall(r"self\.(\w+)", inspect.getsource(Store))}


def unknown(text: str) -> set[str]:
    """The attributes that the text names and that a store does not have."""
    return set(_NAMED.findall(text)) - _KNOWN


def test_every_attribute_of_a_store_that_is_named_exists() -> None:
    wrong = {str(file.relative_to(SOURCE)): unknown(file.read_text()) for file in SOURCE.rglob("*.py")}
    assert {file: names for file, names in wrong.items() if names} == {}


def test_an_attribute_that_does_not_exist_is_found() -> None:
    assert unknown("see `Store.groups` and `Store.reader_group`, or Store.write") == {"reader_group"}
