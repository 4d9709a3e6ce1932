"""Secure by default: what a broker refuses to listen on, and which places it opens."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from anabranch.errors import InvalidArgument, PermissionDenied
from anabranch.security.exposure import is_loopback, require_safe
from anabranch.security.guard import Principal
from anabranch.security.places import check_place
from anabranch.security.store_guard import GuardSettings, StoreGuard
from anabranch.store import Store

HERE = ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]", "::ffff:127.0.0.1"]
ELSEWHERE = [
    "0.0.0.0",
    "::",
    "",
    "10.0.0.1",
    "::ffff:10.0.0.1",
    "broker.example.com",
    "localhost.example.com",
    "127.1",
    "*",
]


@pytest.mark.parametrize("host", [*HERE, *ELSEWHERE])
def test_only_loopback_needs_neither_tls_nor_authentication(host: str) -> None:
    assert is_loopback(host) is (host in HERE)
    for tls, authentication, insecure in product((False, True), repeat=3):
        if host in HERE or insecure or (tls and authentication):
            require_safe(host, tls=tls, authentication=authentication, insecure=insecure)
            continue
        with pytest.raises(InvalidArgument, match="--insecure") as refused:
            require_safe(host, tls=tls, authentication=authentication, insecure=insecure)
        assert ("--dev-tls" in str(refused.value), "--auth tokens" in str(refused.value)) == (
            not tls,
            not authentication,
        )


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives" / "out").symlink_to("/")
    return (str(tmp_path / "archives"), "s3://bucket/backups?endpoint=http://minio:9000")


def test_places_below_those_allowed_are_opened(tmp_path: Path, places: tuple[str, ...]) -> None:
    for place in ("archives", "archives/2026", "archives/../archives/x"):
        check_place(str(tmp_path / place), places)
    check_place(f"file://{tmp_path}/archives/x", places)
    check_place("s3://bucket/backups/2026?endpoint=http://minio:9000", places)


@pytest.mark.parametrize(
    "place",
    [
        "{folder}",
        "{folder}/archives2",
        "{folder}/archives/../../etc",
        "{folder}/archives/out/etc",
        "file://{folder}/archives/out/etc",
        "file:///etc/%2e%2e{folder}/archives/x",
        "file://{folder}/%61rchives/x",
        "file:~/archives",
        "/etc",
        "~",
        "s3://bucket/backups2?endpoint=http://minio:9000",
        "s3://bucket/backups/../secret?endpoint=http://minio:9000",
        "s3://bucket/backups/%2e%2e/secret?endpoint=http://minio:9000",
        "s3://bucket/backups?endpoint=http://evil",
        "s3://bucket/backups",
        "s3://me@bucket/backups?endpoint=http://minio:9000",
        "https://bucket/backups?endpoint=http://minio:9000",
        "postgresql://db/x",
        "http://[",
        "file://[/x",
    ],
)
def test_all_other_places_are_refused(tmp_path: Path, places: tuple[str, ...], place: str) -> None:
    with pytest.raises(PermissionDenied, match="allowed_places"):
        check_place(place.format(folder=tmp_path), places)


@pytest.mark.parametrize("place", ["file:~nobody-has-this-name/x", "~nobody-has-this-name", "/data/\0"])
def test_places_that_can_not_be_folders_are_refused(places: tuple[str, ...], place: str) -> None:
    with pytest.raises(InvalidArgument):
        check_place(place, places)


def test_places_are_for_admins(store: Store, tmp_path: Path) -> None:
    guard = StoreGuard(store, GuardSettings(places=(str(tmp_path),)))
    guard.authorize_place(Principal("root", ("admin",)), str(tmp_path / "x"), verb="archives.create")
    with pytest.raises(PermissionDenied, match="may not administer the store"):
        guard.authorize_place(Principal("op", ("operator",)), str(tmp_path / "x"))
    guard.close()
