"""Displayed addresses and errors about them contain no secret, however the address is spelled."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.blobs.envelope import DataKey
from anabranch.core.redact import redacted, shown_address
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.keys import open_keys, parse_keys
from anabranch.runtime.settings import Settings
from anabranch.store import StoreAddresses

SECRET = "hunter2SECRET"
QUICK = Settings(catalog_lock_s=0.2, blob_deadline_s=0.2, blob_request_s=0.2)

schemes = st.sampled_from(
    ["postgresql", "postgres", "Postgresql", "postgresql+psycopg", "s3", "S3", "s3a", "az", "abfss", "gs", "http", "x"]
)
odd = st.text(st.sampled_from("ab1@:/?#%&=+ ;,[]é"), max_size=4)
options = st.sampled_from(
    [
        "password",
        "sslpassword",
        "passfile",
        "options",
        "unknownopt",
        "secret_access_key",
        "sas",
        "token",
        "X-Amz-Signature",
        "sv",
        "endpoint",
    ]
)


@st.composite
def addresses(draw: st.DrawFn) -> str:
    """An address that holds SECRET as a password, or as the value of an option, among odd characters."""
    scheme, slashes = draw(schemes), draw(st.sampled_from(["://", "://", ":/"]))
    host = draw(st.sampled_from(["127.0.0.1:1", "[::1]:1", "[::bad", "h:notaport", "bucket", "a:1,b:2", ""]))
    if draw(st.booleans()):
        password = draw(odd) + draw(st.sampled_from([SECRET, quote(SECRET), SECRET.replace("h", "%68")])) + draw(odd)
        return f"{scheme}{slashes}river:{password}@{host}/db"
    name = draw(options)
    value = f"https://u:{SECRET}@h" if name == "endpoint" else draw(st.sampled_from(["", "-c%20x="])) + SECRET
    return f"{scheme}{slashes}{host}/db?a=b&{name}={value}" + draw(st.sampled_from(["", "&sslmode=require", "#x"]))


def is_quoted(text: str) -> bool:
    return SECRET in text or SECRET.replace("h", "%68") in text or quote(SECRET) in text


@settings(max_examples=400, deadline=None)
@given(addresses())
def test_no_address_that_is_shown_holds_a_secret(url: str) -> None:
    assert not is_quoted(shown_address(url))
    assert not is_quoted(repr(StoreAddresses(url)))


@settings(max_examples=25, deadline=None)
@given(addresses())
def test_no_error_about_an_address_quotes_its_secret(url: str) -> None:
    for call in (
        lambda: ab.connect(url, blobs="memory://", settings=QUICK, create=False),
        lambda: ab.connect("memory://", blobs=url, settings=QUICK, create=False),
    ):
        if url.startswith(("http", "s3://", "s3a://", "gs://", "az", "abfss")) and "@" not in url and "?" not in url:
            continue
        seen: list[BaseException] = []
        error: BaseException | None = None
        try:
            call().close()
        except AnabranchError as exc:
            error = exc
        waiting = [error]
        while waiting:
            each = waiting.pop()
            if each is not None and each not in seen:
                seen.append(each)
                waiting += [each.__cause__, each.__context__]
        for each in seen:
            assert not is_quoted(str(each)), each
            assert not is_quoted(repr(each)), each
            assert not is_quoted(" ".join(map(repr, vars(each).values())))
            text = "".join(traceback.format_exception_only(each))
            assert not is_quoted(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://river:x@db:5432/streams?sslmode=require", "postgresql://river@db:5432/streams?sslmode=require"),
        ("postgresql://river:p@ss/x@db/streams", "postgresql://river@db/streams"),
        ("postgresql:///streams?host=/run/pg&password=x", "postgresql:///streams?host=/run/pg&password=…"),
        ("s3://bucket/a/b?endpoint=https://h:9000&region=eu", "s3://bucket/a/b?endpoint=https://h:9000&region=eu"),
        ("abfss://c@name.dfs.core.windows.net/p", "abfss://c@name.dfs.core.windows.net/p"),
        ("/data/river", "/data/river"),
        ("./a@b", "./a@b"),
        ("host=db password=x", "host=db password=…"),
        ("river:x@db/streams", "…@db/streams"),
    ],
)
def test_what_is_harmless_is_shown(url: str, shown: str) -> None:
    assert shown_address(url) == shown


def test_addresses_within_a_sentence_are_redacted() -> None:
    said = f"'postgresql://u:{SECRET}@h/db' failed: password={SECRET} 'https://h/x?X-Amz-Signature={SECRET}'"
    assert redacted(said) == "'postgresql://u@h/db' failed: password=… 'https://h/x?…=…'"


def test_keys_in_the_wrong_place_are_not_quoted() -> None:
    coded = "c2VjcmV0" * 5 + "/+=="
    for text in (f"{coded} main", f"main {coded}", coded):
        with pytest.raises(InvalidArgument) as caught:
            parse_keys(text, "file:/keys")
        assert coded not in str(caught.value)
    with pytest.raises(InvalidArgument) as caught:
        open_keys(f"main {coded}", SystemIds())
    assert coded not in str(caught.value)
    assert "sesame" not in repr(DataKey("00" * 8, b"sesame", "main", b""))
