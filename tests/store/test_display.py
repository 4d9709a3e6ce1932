"""How public objects are displayed in a prompt and in a notebook."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.core.display import Displayed
from anabranch.store import Store


@pytest.mark.parametrize("name", ab.__all__)
def test_every_public_class_has_a_description_of_its_own(name: str) -> None:
    public = getattr(ab, name)
    if inspect.isclass(public) and not getattr(public, "_is_protocol", False):
        assert public.__repr__ is not object.__repr__


def test_a_description_reports_name_state_and_size(store: Store) -> None:
    store.scopes.create("iot")
    store.streams.create("iot/raw")
    writer = store.writer("iot/raw")
    acknowledgement = writer.write(b"x", key="k")
    acknowledgement.result()
    reader = store.reader("iot/raw")
    group = store.groups.open("iot/group", streams=["iot/raw"])
    member = group.reader("r1")
    transaction = store.transaction()
    described = {
        "Store": store, "Writer": writer, "Ack": acknowledgement, "Reader": reader, "ReaderGroup": group,
        "GroupReader": member, "Transaction": transaction, "History": store.history("iot/raw"),
    }  # fmt: skip
    assert {kind: repr(each) for kind, each in described.items()} == {
        "Store": f"Store(url={store.url!r}, state='open', open handles=3)",
        "Writer": f"Writer(id={writer.id!r}, stream='iot/raw', state='open')",
        "Ack": "Ack(state='done')",
        "Reader": f"Reader(stream='iot/raw', state='open', position={reader.position}, columns={reader.schema.names})",
        "ReaderGroup": "ReaderGroup(name='iot/group', readers=[], streams=1)",
        "GroupReader": "GroupReader(name='r1', group='iot/group', state='open', segments=1)",
        "Transaction": f"Transaction(id={transaction.id!r}, state='open', writers=0)",
        "History": "History(stream='iot/raw')",
    }
    for kind, each in described.items():
        assert f"<caption>{kind}</caption>" in each._repr_html_()  # type: ignore[attr-defined]
    transaction.abort()
    for closing in (member, reader, writer):
        closing.close()
        assert "state='closed'" in repr(closing)


def test_a_feature_of_the_store_lists_its_verbs(store: Store) -> None:
    assert re.match(r"<StoreStreams: .*append, .*create, .*truncate, view>", repr(store.streams))
    without = [
        name
        for name in dir(store)
        if not name.startswith("_")
        and type(getattr(store, name)).__module__.startswith(
            ("anabranch.store", "anabranch.streams", "anabranch.transfer")
        )
        and type(getattr(store, name)).__repr__ is object.__repr__
    ]
    assert not without


def test_a_description_is_text_not_markup_and_no_control_character(store: Store) -> None:
    store.scopes.create("iot")
    store.streams.create("iot/raw")
    reader = store.groups.open("iot/group", streams=["iot/raw"]).reader("<b>\x1b[2J")
    assert "\x1b" not in repr(reader)
    assert "<b>" not in reader._repr_html_()
    assert "\x1b" not in reader._repr_html_()
    reader.close()


def test_a_description_shows_no_password(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.url = "postgresql://me:secret@host/db"
        assert repr(store) == "Store(url='postgresql://me@host/db', state='open', open handles=0)"


@pytest.mark.parametrize("name", ab.__all__)
def test_an_object_whose_constructor_failed_has_a_description(name: str) -> None:
    public = getattr(ab, name)
    if inspect.isclass(public) and issubclass(public, Displayed) and not dataclasses.is_dataclass(public):
        assert public.__name__ in repr(public.__new__(public))
