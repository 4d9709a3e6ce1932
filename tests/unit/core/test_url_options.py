"""The options of an address are decoded as libpq decodes them."""

from __future__ import annotations

import pytest

from anabranch.catalog.postgres.address import DatabaseAddress
from anabranch.core.redact import hide_secrets, secrets_in, shown_address
from anabranch.core.url_options import url_options


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("a=b+c", [("a", "b+c")]),
        ("a=b%20c%2Bd&e=", [("a", "b c+d"), ("e", "")]),
    ],
)
def test_a_plus_is_no_space(query: str, expected: list[tuple[str, str]]) -> None:
    assert url_options(query) == expected


def test_libpq_gets_what_the_address_says() -> None:
    conninfo = pytest.importorskip("psycopg.conninfo")
    url = "postgresql://me@host/db?password=a+b%20c&application_name=x+y"
    address = DatabaseAddress.parse(url)
    assert conninfo.conninfo_to_dict(address.conninfo) == {
        **conninfo.conninfo_to_dict(url),
        "password": "a+b c",
        "application_name": "x+y",
    }


def test_an_address_with_a_plus_shows_no_secret() -> None:
    url = "postgresql://me@host/db?options=-c%20x.token=ab+cd"
    assert hide_secrets("the token ab+cd is wrong", secrets_in(url)) == "the token … is wrong"
    assert shown_address("s3://b?endpoint=https://h/a+b") == "s3://b?endpoint=https://h/a+b"
