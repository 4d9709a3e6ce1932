"""Adding, listing and removing modules, as state of the store."""

from __future__ import annotations

import hashlib

import pytest

from anabranch import limits
from anabranch.catalog.state.module_version import MODULE_CODE
from anabranch.errors import Conflict, InvalidArgument, ModuleNotFound, RequestMismatch, TooLarge
from anabranch.store import Store
from tests.wasm_modules import FAHRENHEIT, IS_HOT, SCORE, heat, module

CELSIUS = module(FAHRENHEIT, more='(data (i32.const 0) "another")')


def codes(store: Store) -> list[str]:
    """Whose code the store keeps."""
    with store.catalog.reading() as txn:
        return [digest for digest, _ in txn.states(MODULE_CODE)]


def test_each_change_of_a_module_is_a_version(anywhere: Store) -> None:
    modules = anywhere.modules
    assert modules.list() == []
    first = modules.add("heat", heat(), signatures=[SCORE])
    assert (first.module, first.number, first.size, first.functions) == ("heat", 1, len(heat()), (SCORE,))
    assert first.digest == hashlib.sha256(heat()).hexdigest()
    assert modules.add("heat", heat(), signatures=["score(celsius: float64) -> float64"]) == first, "nothing changed"
    assert modules.add("heat", heat(), signatures=[SCORE, IS_HOT]).number == 2
    assert modules.add("heat", CELSIUS, signatures=[SCORE]).number == 3
    assert modules.add("heat", heat(), signatures=[SCORE]).number == 4
    assert [(each.number, each.functions) for each in modules.versions("heat")] == [
        (1, (SCORE,)),
        (2, (SCORE, IS_HOT)),
        (3, (SCORE,)),
        (4, (SCORE,)),
    ]
    assert modules.get("heat").number == 4 and [each.number for each in modules.list()] == [4]
    assert (modules.code("heat"), modules.code("heat", 3)) == (heat(), CELSIUS)
    assert len(codes(anywhere)) == 2, "equal code is kept once"


def test_a_removed_module_leaves_nothing(anywhere: Store) -> None:
    modules = anywhere.modules
    modules.add("heat", heat(), signatures=[SCORE])
    modules.add("other", heat(), signatures=[IS_HOT])
    modules.remove("heat")
    assert modules.code("other") == heat(), "its code is the other's too"
    modules.remove("other")
    assert codes(anywhere) == [] and modules.list() == []
    for ask in (modules.get, modules.versions, modules.code, modules.remove):
        with pytest.raises(ModuleNotFound, match="module 'heat' not found; list them with: anabranch modules list"):
            ask("heat")


def test_old_versions_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MODULE_VERSIONS_MAX", 2)
    for name in "abc":
        store.modules.add("heat", heat(), signatures=[f"score({name} double) -> double"])
    store.modules.add("heat", CELSIUS, signatures=[SCORE])
    assert [each.number for each in store.modules.versions("heat")] == [3, 4]
    with pytest.raises(ModuleNotFound, match="module 'heat' has no version 1"):
        store.modules.code("heat", 1)
    store.modules.add("heat", CELSIUS, signatures=["score(x double) -> double"])
    assert codes(store) == [hashlib.sha256(CELSIUS).hexdigest()]


def test_a_function_belongs_to_one_module(store: Store) -> None:
    store.modules.add("heat", heat(), signatures=[SCORE])
    with pytest.raises(Conflict, match="module 'heat' has a function score already"):
        store.modules.add("other", heat(), signatures=[IS_HOT, SCORE])
    store.modules.add("heat", heat(), signatures=[IS_HOT])
    store.modules.add("other", heat(), signatures=[SCORE])


def test_what_is_no_module_is_refused_and_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add = store.modules.add
    with pytest.raises(InvalidArgument, match="does not begin with the bytes"):
        add("heat", b"garbage", signatures=[SCORE])
    with pytest.raises(InvalidArgument, match="not a valid name for a module"):
        add("he/at", heat(), signatures=[SCORE])
    with pytest.raises(InvalidArgument, match="is not a signature"):
        add("heat", heat(), signatures=["score"])
    with pytest.raises(InvalidArgument, match="does not export the function 'other'"):
        add("heat", heat(), signatures=["other(x double) -> double"])
    with pytest.raises(TooLarge, match="module 'heat' is 1,048,577 bytes"):
        add("heat", bytes(limits.MODULE_BYTES_MAX + 1), signatures=[SCORE])
    monkeypatch.setattr(limits, "MODULES_BYTES_MAX", len(heat()))
    add("heat", heat(), signatures=[SCORE])
    with pytest.raises(TooLarge, match="the code of all modules"):
        add("heat", CELSIUS, signatures=[SCORE])
    assert [each.number for each in store.modules.versions("heat")] == [1]
    assert codes(store) == [hashlib.sha256(heat()).hexdigest()]


def test_a_repeated_request_is_done_once(anywhere: Store) -> None:
    modules = anywhere.modules
    first = modules.add("heat", heat(), signatures=[SCORE], request="r")
    modules.add("heat", CELSIUS, signatures=[SCORE])
    assert modules.add("heat", heat(), signatures=[SCORE], request="r").number == 2, "it is the current one"
    assert [each.number for each in modules.versions("heat")] == [1, 2] and first.number == 1
    with pytest.raises(RequestMismatch):
        modules.add("heat", CELSIUS, signatures=[SCORE], request="r")
    modules.remove("heat", request="gone")
    modules.add("heat", heat(), signatures=[SCORE])
    modules.remove("heat", request="gone")
    assert modules.get("heat").number == 1
