"""Signed queries: what a store with trusted keys takes, and what it refuses."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from anabranch import limits
from anabranch.deployments.files import check_files
from anabranch.deployments.signatures import TrustedKeys, check_signed, sign_query
from anabranch.errors import InvalidArgument, PermissionDenied
from anabranch.store import Store

FILES = {"model.json": b"{}"}


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    """The private keys of two people."""
    made = {}
    for name in ("alice", "mallory"):
        made[name] = tmp_path / f"{name}.pem"
        made[name].touch(0o600)
        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        made[name].write_bytes(pem)
    return made


def signed(
    key: Path, text: str = "one", parameters: dict[str, str] | None = None, files: dict[str, bytes] = FILES
) -> str:
    return sign_query(key, text, parameters or {}, check_files(files))


def public(signature: str) -> bytes:
    return base64.b64decode(signature.split(":")[1])


@pytest.fixture
def trusting(store: Store, keys: dict[str, Path]) -> Store:
    """A store that trusts alice."""
    TrustedKeys(store.changes).add(public(signed(keys["alice"])), "alice")
    return store


def test_without_a_trusted_key_nothing_has_to_be_signed(store: Store, keys: dict[str, Path]) -> None:
    assert store.queries.deploy("q", "one").version == 1
    assert store.queries.deploy("q", "one", files=FILES, signature=signed(keys["mallory"])).version == 2
    assert store.queries.versions("q")[1].signature == signed(keys["mallory"])


def test_what_a_trusted_key_signed_is_deployed(trusting: Store, keys: dict[str, Path]) -> None:
    parameters = {"b": "2", "a": "1"}
    text = "DECLARE PARAMETER a INT; DECLARE PARAMETER b INT; SELECT"
    signature = signed(keys["alice"], text, parameters)
    reordered = {"a": "1", "b": "2"}
    deploy = trusting.queries.deploy
    assert deploy("q", text, parameters=reordered, files=FILES, signature=signature + "\n").version == 1
    assert deploy("p", text, parameters=parameters, files=FILES, signature=signature).version == 1


def test_what_is_not_signed_by_a_trusted_key_is_refused(trusting: Store, keys: dict[str, Path]) -> None:
    deploy = trusting.queries.deploy
    with pytest.raises(PermissionDenied, match="version 1 of query 'q' is not signed"):
        deploy("q", "one")
    with pytest.raises(PermissionDenied, match="which this store does not trust"):
        deploy("q", "one", files=FILES, signature=signed(keys["mallory"]))
    good = signed(keys["alice"])
    scheme, key, _ = good.split(":")
    forged = base64.b64encode(bytes(64)).decode()
    for text, files in (("two", FILES), ("one", {}), ("one", {"model.json": b"[]"}), ("one", {"other.json": b"{}"})):
        with pytest.raises(PermissionDenied, match="does not match its statements, parameters and files"):
            deploy("q", text, files=files, signature=good)
    text = "DECLARE PARAMETER a INT DEFAULT 2; SELECT"
    of_defaults = signed(keys["alice"], text)
    with pytest.raises(PermissionDenied, match="does not match"):
        deploy("q", text, parameters={"a": "1"}, files=FILES, signature=of_defaults)
    with pytest.raises(PermissionDenied, match="does not match"):
        deploy("q", "one", files=FILES, signature=f"{scheme}:{key}:{forged}")
    with pytest.raises(PermissionDenied, match="does not match"):
        deploy("q", "one", files=FILES, signature=f"{scheme}:{key}:{signed(keys['mallory']).split(':')[2]}")
    assert trusting.queries.list() == []


@pytest.mark.parametrize(
    "text", ["", "ed25519", "ed25519:a:b", "rsa:{0}:{1}", "ed25519:{0}:{0}", "ed25519:{0}:{1}:{1}", "ed25519:é:{1}"]
)
def test_texts_that_are_no_signatures(store: Store, text: str) -> None:
    key, signature = (base64.b64encode(bytes(size)).decode() for size in (32, 64))
    with pytest.raises(InvalidArgument, match="is not a signature"):
        store.queries.deploy("q", "one", signature=text.format(key, signature))


def test_a_signature_stays_where_nothing_that_it_signs_changes(trusting: Store, keys: dict[str, Path]) -> None:
    queries = trusting.queries
    queries.deploy("q", "one", files=FILES, signature=signed(keys["alice"]))
    assert queries.upgrade("q", "one", trigger="5s").version == 2
    assert queries.replay("q").version == 3
    queries.delete("q-replay-3")
    with pytest.raises(PermissionDenied, match="version 3 of query 'q' is not signed"):
        queries.upgrade("q", "two")
    with pytest.raises(PermissionDenied, match="is not signed"):
        queries.replay("q", "two")
    assert queries.upgrade("q", "two", signature=signed(keys["alice"], "two")).version == 3


def test_versions_from_before_there_was_a_trusted_key_are_not_gone_back_to(store: Store, keys: dict[str, Path]) -> None:
    queries, trusted = store.queries, TrustedKeys(store.changes)
    queries.deploy("q", "one")
    good = signed(keys["alice"], files={})
    queries.deploy("q", "one", signature=good)
    trusted.add(public(good), "alice")
    with pytest.raises(PermissionDenied, match="version 1 of query 'q' is not signed"):
        queries.rollback("q")
    first, second = queries.versions("q")
    with store.catalog.reading() as txn:
        check_signed(txn, second)
        with pytest.raises(PermissionDenied):
            check_signed(txn, first)
    assert trusted.remove("alice").label == "alice"
    assert queries.rollback("q").version == 1


def test_trusted_keys_are_added_listed_and_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = TrustedKeys(store.changes)
    one, two = bytes(31) + b"\1", bytes(31) + b"\2"
    trusted.add(two, "two")
    trusted.add(one, "first")
    trusted.add(one, "one")
    assert [(row.key, row.label) for row in trusted.list()] == [(one.hex(), "one"), (two.hex(), "two")]
    with pytest.raises(InvalidArgument, match="expected an Ed25519 public key of 32 bytes, got 31"):
        trusted.add(bytes(31), "short")
    with pytest.raises(InvalidArgument, match="expected a label"):
        trusted.add(one, "")
    for text, count in (("00", 2), ("three", 0), ("", 2)):
        with pytest.raises(InvalidArgument, match=f"matches {count} of the 2 trusted keys"):
            trusted.remove(text)
    assert trusted.remove(two.hex()).label == "two"
    monkeypatch.setattr(limits, "TRUSTED_KEYS_MAX", 1)
    trusted.add(one, "again")
    with pytest.raises(InvalidArgument, match="the store already trusts 1 keys, the limit"):
        trusted.add(two, "two")
