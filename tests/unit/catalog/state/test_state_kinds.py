"""The kinds of state that the catalog keeps: all are listed, decoded strictly, and shown in the docs with an example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch
from anabranch.catalog.state.kind import TEXT_KEY, Entry, StateKind
from anabranch.catalog.state.kinds import KINDS, decode
from anabranch.errors import CorruptCatalog, FormatTooNew
from docs import state_page

Kind = StateKind[Any, Any]
ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
OTHERS: tuple[Any, ...] = (None, True, 7, -1.5, "", "text", [], [[]], {}, {"more": 1})


def entry_of(kind: Kind) -> Entry:
    return kind.entry(*kind.example)


def changed(kind: Kind, value: Any) -> Entry:
    return entry_of(kind)._replace(value=json.dumps(value))


def test_every_kind_is_declared_in_the_package_and_listed() -> None:
    package = Path(anabranch.__file__).parent
    files = {file.relative_to(package): file.read_text() for file in package.rglob("*.py")}
    declared = {file: len(re.findall(r" = state_kind\(\n", text)) for file, text in files.items()}
    assert {file.parent.as_posix() for file, count in declared.items() if count} == {"catalog/state"}
    assert sum(declared.values()) == len(KINDS)


@ALL
def test_an_example_is_encoded_back_to_the_same_row(kind: Kind) -> None:
    entry = entry_of(kind)
    found = decode(entry)
    assert found == kind.example
    assert kind.entry(*found) == entry


@ALL
def test_a_missing_member_and_an_unknown_one_are_refused(kind: Kind) -> None:
    value = json.loads(entry_of(kind).value)
    for name in value:
        with pytest.raises(CorruptCatalog, match=re.escape(f"({kind.name}, {entry_of(kind).key})")):
            decode(changed(kind, {key: each for key, each in value.items() if key != name}))
    with pytest.raises(CorruptCatalog):
        decode(changed(kind, {**value, "one_more": 1}))


@ALL
def test_a_key_and_a_lookup_that_are_not_written_so_are_refused(kind: Kind) -> None:
    entry = entry_of(kind)
    with pytest.raises(CorruptCatalog):
        decode(entry._replace(lookup="x" if entry.lookup is None else None))
    if kind.key is not TEXT_KEY or kind.identity is not None:
        with pytest.raises(CorruptCatalog):
            decode(entry._replace(key=f"{entry.key}/ "))


@ALL
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_value_of_another_type_is_refused_or_encoded_back(kind: Kind, data: st.DataObject) -> None:
    value = json.loads(entry_of(kind).value)
    place: Any = value
    while True:  # down to a random place of the value
        at = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not place[at] or not isinstance(place[at], dict | list) or data.draw(st.booleans()):
            break
        place = place[at]
    place[at] = data.draw(st.sampled_from(OTHERS))
    entry = changed(kind, value)
    try:
        found = decode(entry)
    except (CorruptCatalog, FormatTooNew):
        return
    assert json.loads(kind.entry(*found).value) == value


def test_a_row_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(CorruptCatalog, match="a kind that this release does not know"):
        decode(Entry("another", "a", None, "{}"))


# the page in the docs


def test_the_page_shows_every_kind_with_an_example_that_is_decoded_and_encoded_back() -> None:
    sections = re.split(r"^## ", state_page.PAGE.read_text(), flags=re.MULTILINE)[1:]
    shown = {}
    for section in sections:
        name = section.partition("\n")[0]
        (text,) = re.findall(r"```json\n(.*?)\n```", section, re.DOTALL)
        row = json.loads(text)
        entry = Entry(name, row["key"], row["lookup"], json.dumps(row["value"], separators=(",", ":"), sort_keys=True))
        assert KINDS[name].entry(*decode(entry)) == entry
        shown[name] = entry
    assert shown.keys() == KINDS.keys()


def test_the_page_is_what_the_declarations_say() -> None:
    assert state_page.PAGE.read_text() == state_page.page(), "make it anew: python docs/state_page.py"
