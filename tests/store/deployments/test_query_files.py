"""Wheels, modules and resources of deployed queries: kept by their content with the versions that have them."""

from __future__ import annotations

import hashlib

import pytest

from anabranch import limits
from anabranch.catalog.state.query_version import QUERY_CONTENT
from anabranch.deployments.files import contents_of
from anabranch.errors import CorruptCatalog, InvalidArgument, QueryNotFound, TooLarge
from anabranch.store import Store
from tests.wheels import wheel

WHEEL = "scoring-1.0-py3-none-any.whl"
FIRST = {WHEEL: wheel({"scoring.py": "A = 1"}), "model.json": b'{"slope": 2}'}
SECOND = {**FIRST, "model.json": b'{"slope": 3}'}


def kept(store: Store) -> list[str]:
    with store.catalog.reading() as txn:
        return [key for key, _ in txn.states(QUERY_CONTENT)]


def digests(*contents: bytes) -> list[str]:
    return sorted(hashlib.sha256(each).hexdigest() for each in contents)


def test_files_are_a_part_of_a_version_and_kept_once(anywhere: Store) -> None:
    queries = anywhere.queries
    assert queries.deploy("q", "one", files=FIRST).version == 1
    assert queries.deploy("q", "one", files=dict(reversed(FIRST.items()))).version == 1
    assert queries.deploy("q", "one", files=SECOND).version == 2
    assert queries.deploy("q", "one").version == 3
    assert queries.deploy("p", "other", files=FIRST).version == 1
    listed = [[(file.name, file.kind, file.size) for file in each.files] for each in queries.versions("q")]
    model, code = ("model.json", "resource", 12), (WHEEL, "wheel", len(FIRST[WHEEL]))
    assert listed == [[model, code], [model, code], []]
    assert [each.has_python for each in queries.versions("q")] == [True, True, False]
    assert kept(anywhere) == digests(FIRST[WHEEL], FIRST["model.json"], SECOND["model.json"])
    assert queries.file("q", "model.json", 1) == b'{"slope": 2}'
    assert queries.file("q", "model.json", 2) == b'{"slope": 3}'
    assert queries.rollback("q", 2).version == 2
    assert queries.file("q", "model.json") == b'{"slope": 3}'


def test_a_file_that_a_version_does_not_have(anywhere: Store) -> None:
    anywhere.queries.deploy("q", "one", files={"a.txt": b"1"})
    with pytest.raises(InvalidArgument, match=r"version 1 of query 'q' has no file 'b\.txt'; it has: a\.txt"):
        anywhere.queries.file("q", "b.txt")
    with pytest.raises(QueryNotFound, match="has no version 2"):
        anywhere.queries.file("q", "a.txt", 2)


def test_an_upgrade_keeps_the_files_unless_some_are_given(anywhere: Store) -> None:
    queries = anywhere.queries
    queries.deploy("q", "one", files=FIRST)
    assert queries.upgrade("q", "two").version == 2
    assert queries.versions("q")[1].files == queries.versions("q")[0].files
    assert queries.upgrade("q", "two", files={"model.json": b"{}"}).version == 3
    assert [file.name for file in queries.versions("q")[2].files] == ["model.json"]
    assert queries.upgrade("q", "two", files={}).version == 4
    assert queries.versions("q")[3].files == ()
    assert queries.upgrade("q", "two", files={}).version == 4


def test_a_replay_has_the_files_of_the_query_or_its_own(anywhere: Store) -> None:
    queries = anywhere.queries
    queries.deploy("q", "one", files=FIRST)
    replay = queries.replay("q")
    assert queries.versions(replay.name)[0].files == queries.versions("q")[0].files
    queries.delete(replay.name)
    assert queries.file("q", WHEEL) == FIRST[WHEEL]


def test_contents_go_with_the_last_version_that_has_them(anywhere: Store) -> None:
    queries = anywhere.queries
    queries.deploy("q", "one", files=FIRST)
    queries.deploy("q", "two", files=SECOND)
    queries.deploy("p", "one", files={"model.json": FIRST["model.json"]})
    queries.delete("q")
    assert kept(anywhere) == digests(FIRST["model.json"])
    queries.delete("p")
    assert kept(anywhere) == []


def test_contents_go_with_a_version_that_is_no_longer_kept(anywhere: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_VERSIONS_MAX", 2)
    for number in range(4):
        anywhere.queries.deploy("q", "one", files={"model.json": b"%d" % number})
    assert kept(anywhere) == digests(b"2", b"3")


@pytest.mark.parametrize("name", ["", "../model.json", "a/b", ".hidden", "a b", "a\0", "é", "x" * 129])
def test_names_that_a_file_can_not_have(anywhere: Store, name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a name for a file of a query"):
        anywhere.queries.deploy("q", "one", files={name: b""})
    assert anywhere.queries.list() == []


def test_files_that_are_refused(anywhere: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy = anywhere.queries.deploy
    with pytest.raises(InvalidArgument, match="differ only in case"):
        deploy("q", "one", files={"a": b"", "A": b""})
    with pytest.raises(InvalidArgument, match="is not a WebAssembly module"):
        deploy("q", "one", files={"heat.wasm": b"(module)"})
    with pytest.raises(TooLarge, match=r"'heat.wasm' is 1,048,577 bytes"):
        deploy("q", "one", files={"heat.wasm": b"\0asm".ljust(limits.MODULE_BYTES_MAX + 1)})
    with pytest.raises(InvalidArgument, match="is not the name of a wheel"):
        deploy("q", "one", files={"a.whl": b""})
    with pytest.raises(InvalidArgument, match=r"both have the file 'scoring\.py'"):
        deploy(
            "q",
            "one",
            files={WHEEL: FIRST[WHEEL], "other-1.0-py3-none-any.whl": wheel({"scoring.py": ""}, name="other")},
        )
    with pytest.raises(InvalidArgument, match="expected at most 32 files, got 33"):
        deploy("q", "one", files={f"f{number}": b"" for number in range(33)})
    monkeypatch.setattr(limits, "DEPLOYMENT_FILES_BYTES_MAX", 10)
    with pytest.raises(TooLarge, match="the files of a query is 11 bytes"):
        deploy("q", "one", files={"a": b"x" * 6, "b": b"y" * 5})
    assert anywhere.queries.list() == []


def test_all_files_of_a_store_have_a_limit(anywhere: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPLOYMENT_ALL_FILES_BYTES_MAX", 10)
    anywhere.queries.deploy("q", "one", files={"a": b"x" * 6})
    anywhere.queries.deploy("p", "one", files={"b": b"x" * 6})
    with pytest.raises(TooLarge, match="the files of all queries is 11 bytes, over the limit of 10"):
        anywhere.queries.deploy("p", "two", files={"b": b"y" * 5})
    assert len(kept(anywhere)) == 1


def test_a_content_that_was_changed_in_the_catalog_is_not_used(store: Store) -> None:
    store.queries.deploy("q", "one", files=FIRST)
    (model, _) = store.queries.versions("q")[0].files
    with store.catalog.writing() as txn:
        txn.put_state(QUERY_CONTENT, model.digest, b'{"slope": 9}')
    with store.catalog.reading() as txn, pytest.raises(CorruptCatalog, match="does not match its SHA-256"):
        contents_of(txn, [model])
    with store.catalog.writing() as txn:
        txn.drop_state(QUERY_CONTENT, model.digest)
    with pytest.raises(CorruptCatalog, match=r"'model\.json' of a query is missing"):
        store.queries.file("q", "model.json")
