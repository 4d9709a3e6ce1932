"""Master keys: what a text of keys may say, who may read its file, and the cipher against its published vectors."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from anabranch.errors import InvalidArgument, KeyMissing, WrongKey
from anabranch.runtime.aead import InvalidTag, open_box, seal_box
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import MasterKeys, new_key_line, open_keys, parse_keys

IDS = SystemIds()
A, B = bytes(range(32)), bytes(range(1, 33))
NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"


def _line(key_id: str, key: bytes) -> str:
    return f"{key_id} {base64.b64encode(key).decode()}\n"


@pytest.mark.parametrize(
    ("key", "bound", "sealed"),
    [
        (1, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (3, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_the_cipher_is_the_published_one(key: int, bound: bytes, sealed: str) -> None:
    assert seal_box(bytes([key]) * 32, NONCE, b"XAES-256-GCM", bound).hex() == sealed
    assert open_box(bytes([key]) * 32, NONCE, bytes.fromhex(sealed), bound) == b"XAES-256-GCM"


def test_a_box_opens_with_its_own_key_nonce_bytes_and_binding_alone() -> None:
    sealed = seal_box(A, NONCE, b"text", b"here")
    wrong = [
        (B, NONCE, sealed, b"here"),
        (A, b"X" + NONCE[1:], sealed, b"here"),
        (A, NONCE[:-1] + b"Y", sealed, b"here"),
        (A, NONCE, sealed, b"there"),
        *((A, NONCE, bytes([*sealed[:i], sealed[i] ^ 1, *sealed[i + 1 :]]), b"here") for i in range(len(sealed))),
    ]
    for key, nonce, data, bound in wrong:
        with pytest.raises(InvalidTag):
            open_box(key, nonce, data, bound)


def test_the_first_key_of_a_text_is_current_and_all_of_them_unwrap() -> None:
    old = MasterKeys(parse_keys("# ours\n\n" + _line("old", A), "here"), IDS)
    both = MasterKeys(parse_keys(_line("new", B) + _line("old", A), "here"), IDS)
    assert both.current == "new"
    wrapped = old.wrap("old", b"s" * 32)
    assert both.unwrap("old", wrapped) == b"s" * 32
    assert old.wrap("old", b"s" * 32) != wrapped


def test_a_key_that_is_missing_and_one_that_is_another_are_distinguished() -> None:
    mine = MasterKeys({"a": A}, IDS)
    wrapped = mine.wrap("a", b"s" * 32)
    with pytest.raises(KeyMissing, match="'a'") as missing:
        MasterKeys({"b": A}, IDS).unwrap("a", wrapped)
    assert missing.value.key_id == "a"
    with pytest.raises(WrongKey, match="'a'") as wrong:
        MasterKeys({"a": B}, IDS).unwrap("a", wrapped)
    assert wrong.value.key_id == "a"
    both = MasterKeys({"a": A, "b": A}, IDS)
    with pytest.raises(WrongKey):  # the same bytes under another id are another key
        both.unwrap("b", wrapped)
    with pytest.raises(WrongKey):
        mine.unwrap("a", wrapped[:10])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no key"),
        ("# nothing\n", "no key"),
        ("a\n", "line 1"),
        (_line("a", A) + "b c d\n", "line 2"),
        ("a !!!!\n", "base64"),
        (_line("a", A[:31]), "31 bytes"),
        (_line("a", A) + _line("a", B), "a second key"),
        (_line("a/b", A), "not a key id"),
        (_line("x" * 65, A), "not a key id"),
    ],
)
def test_a_malformed_text_is_refused_without_quoting_a_key(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why) as refused:
        parse_keys(text, "file:here")
    assert base64.b64encode(A).decode() not in str(refused.value)


def test_keys_come_from_a_file_that_not_everybody_may_open(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(_line("a", A))
    for mode in (0o604, 0o602, 0o606, 0o644):
        file.chmod(mode)
        with pytest.raises(InvalidArgument, match="chmod 600"):
            open_keys(f"file:{file}", IDS)
    for mode in (0o600, 0o400, 0o440):
        file.chmod(mode)
        assert open_keys(f"file:{file}", IDS).current == "a"
    assert open_keys(f"file://{file}", IDS).current == "a"
    with pytest.raises(InvalidArgument, match="can't be read"):
        open_keys(f"file:{file}.gone", IDS)


def test_a_home_folder_that_no_user_has_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no home folder is known for '~no-such-user/keys'"):
        open_keys("file:~no-such-user/keys", IDS)


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVER_KEYS", _line("b", B) + _line("a", A))
    keys = open_keys("env:RIVER_KEYS", IDS)
    assert keys.current == "b"
    assert keys.unwrap("a", MasterKeys({"a": A}, IDS).wrap("a", b"s" * 32)) == b"s" * 32
    with pytest.raises(InvalidArgument, match="NO_KEYS"):
        open_keys("env:NO_KEYS", IDS)
    with pytest.raises(InvalidArgument, match="file:/path"):
        open_keys("/just/a/path", IDS)


def test_a_new_line_holds_a_key_of_its_own() -> None:
    first, second = new_key_line("k", IDS), new_key_line("k", IDS)
    assert first != second
    assert list(parse_keys(first, "here")) == ["k"]
    with pytest.raises(InvalidArgument):
        new_key_line("not an id", IDS)
