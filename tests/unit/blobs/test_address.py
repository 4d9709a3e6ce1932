"""URLs of object stores."""

from __future__ import annotations

import pytest

from anabranch.blobs.address import is_remote, parse
from anabranch.errors import InvalidArgument


@pytest.mark.parametrize(
    "url", ["s3://bucket/data#1", "s3://bucket#1/data", "s3://bucket/data?region=eu#1", "az://c/#"]
)
def test_what_a_url_parser_would_drop_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="has a '#'"):
        parse(url)


@pytest.mark.parametrize("scheme", ["s3", "S3", "s3a", "Az", "ABFSS", "gs"])
def test_the_case_of_a_scheme_does_not_matter(scheme: str) -> None:
    assert is_remote(f"{scheme}://bucket/prefix")
    assert parse(f"{scheme}://bucket/prefix").bucket == "bucket"


@pytest.mark.parametrize("text", ["/data/s3", "s3:/bucket", "data", "C:\\data", "http://host", "s3"])
def test_what_is_no_url_of_an_object_store_is_a_path(text: str) -> None:
    assert not is_remote(text)


def test_a_plus_in_an_option_is_a_plus() -> None:
    address = parse("s3://bucket?ca=/etc/c%2B%2B/a+b%20c.pem&region=eu+1")
    assert (address.ca, address.region) == ("/etc/c++/a+b c.pem", "eu+1")
