"""Settings of the broker: one name in the file, the environment and the flags; what is unknown or unsafe is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch.server.config import ServerSettings, load


def settings(flags: dict[str, Any] | None = None, **environment: str) -> ServerSettings:
    return load(flags or {}, environment=environment).settings


def refusal(flags: dict[str, Any] | None = None, *, file: Path | None = None, **environment: str) -> str:
    with pytest.raises(InvalidArgument) as refused:
        load(flags or {}, environment=environment, file=file)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("http_port = 1\nflight_port = 1\ngrpc_port = 1\n")
    environment = {"ANABRANCH_SERVER_HTTP_PORT": "2", "ANABRANCH_SERVER_FLIGHT_PORT": "2"}
    loaded = load({"http_port": 3}, environment=environment, file=file)
    found = loaded.settings
    assert (found.http_port, found.flight_port, found.grpc_port) == (3, 2, 1)
    assert loaded.origins == {"http_port": "flag", "flight_port": "environment", "grpc_port": str(file)}
    by_variable = load({}, environment={"ANABRANCH_SERVER_CONFIG": str(file)})
    assert by_variable.settings.http_port == 1


def test_the_store_of_other_verbs_is_served_unless_the_broker_has_its_own() -> None:
    assert settings(ANABRANCH_STORE="/a").store == "/a"
    assert settings(ANABRANCH_STORE="/a", ANABRANCH_SERVER_STORE="/b").store == "/b"
    assert settings({"store": "/c"}, ANABRANCH_SERVER_STORE="/b").store == "/c"


def test_lists_and_absent_values_can_be_written_in_the_environment() -> None:
    found = settings(ANABRANCH_SERVER_ALLOWED_PLACES="/data, s3://lake", ANABRANCH_SERVER_MAINTENANCE_S="off")
    assert (found.allowed_places, found.maintenance_s) == (("/data", "s3://lake"), None)


def test_an_unknown_name_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("htp_port = 1\n")
    assert refusal(file=file) == f"'htp_port' in {file} is not a setting of the broker; did you mean 'http_port'?"
    assert "ANABRANCH_SERVER_WORKER in the environment" in refusal(ANABRANCH_SERVER_WORKER="2")
    assert "did you mean 'workers'?" in refusal({"worker": "2"})
    assert "--print-config lists all" in refusal({"zzz": "2"})


def test_a_bad_value_is_named_with_its_origin_and_not_repeated() -> None:
    told = refusal(ANABRANCH_SERVER_HTTP_PORT="s3cret")
    assert told.startswith("http_port (environment): ") and "s3cret" not in told
    assert refusal({"http_port": 65536}).startswith("http_port (flag): ")
    assert refusal({"drain_s": "nan"}).startswith("drain_s (flag): ")


def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    assert "can't be read" in refusal(file=tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = b")
    assert "is not TOML" in refusal(file=broken)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "broker.example.org"])
def test_a_broker_that_others_can_reach_needs_tls_and_authentication(host: str) -> None:
    assert "TLS" in refusal({"host": host})
    assert "TLS" in refusal({"host": host, "auth": "tokens"})
    assert "authentication" in refusal({"host": host, "dev_tls": True, "auth": "off"})
    assert settings({"host": host, "dev_tls": True}).authenticates
    assert not settings({"host": host, "insecure": True}).authenticates


@pytest.mark.parametrize(
    "flags",
    [
        {"tls_key": "k.pem"},
        {"tls_client_ca": "ca.pem"},
        {"dev_tls": True, "tls_certificate": "c.pem", "tls_key": "k.pem"},
        {"jwks_url": "https://issuer"},
        {"flight": False, "http": False, "grpc": False},
        {"store": "memory://", "workers": 2},
    ],
)
def test_values_that_contradict_each_other_are_refused(flags: dict[str, Any]) -> None:
    refusal(flags)


def test_the_printed_settings_are_toml_without_passwords() -> None:
    flags = {
        "store": "postgresql://me:s3cret@db/streams",
        "blobs": "s3://b/p?secret_key=s3cret",
        "allowed_places": "/a,s3://b/q?secret_key=s3cret",
        "jwks_url": "https://me:s3cret@issuer/keys",
        "jwt_issuer": "https://issuer",
        "jwt_audience": "river",
    }
    loaded = load(flags, environment={})
    text = loaded.as_toml()
    assert "s3cret" not in text and "s3cret" not in repr(loaded)
    assert 'host = "127.0.0.1"  # default' in text
    read_back = {name: value for name, value in tomllib.loads(text).items() if name not in flags}
    again = load(read_back, environment={}).settings
    defaults = settings()
    assert {name: getattr(again, name) for name in read_back} == {name: getattr(defaults, name) for name in read_back}


@pytest.mark.parametrize(
    "flags",
    [
        {"principal_bytes_per_s": 10_485_760, "idle_timeout_s": 0.1, "drain_s": 86_400, "total_calls_per_s": 1e21},
        {
            "upload_lifetime_s": "off",
            "maintenance_s": "off",
            "principal_connections": "off",
            "total_memory_bytes": "off",
        },
        {"store": 'a"b\\c\n\t\x01\x7fé', "allowed_places": "/a, s3://b/c"},
    ],
)
def test_the_printed_settings_are_those_in_force(flags: dict[str, Any]) -> None:
    loaded = load(flags, environment={})
    assert load(tomllib.loads(loaded.as_toml()), environment={}).settings == loaded.settings


def test_an_integer_of_thousands_of_digits_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"workers = {'9' * 5_000}\n")
    with pytest.raises(InvalidArgument, match="is not TOML"):
        load({}, environment={}, file=file)
