"""The files in deploy/ name settings that exist, with values that the broker takes."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from anabranch.server.config import PREFIX, load

DEPLOY = Path(__file__).parents[2] / "deploy"


def compose() -> dict[str, Any]:
    yaml = importlib.import_module("yaml")
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "anabranch.service")
    return parser


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_the_file_of_settings_is_one() -> None:
    found = load({}, environment={}, file=DEPLOY / "server.toml").settings
    assert found.authenticates and found.tls and not found.on_loopback


def test_the_unit_starts_a_broker_and_gives_it_time_to_drain() -> None:
    service = unit()["Service"]
    program, verb, option, file = shlex.split(service["ExecStart"])
    assert (Path(program).name, verb, option) == ("anabranch", "serve", "--config")
    settings = load({}, environment={}, file=DEPLOY / Path(file).name).settings
    assert seconds(service["TimeoutStopSec"]) > settings.drain_s + 10
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")


@pytest.mark.parametrize("broker", ["broker-1", "broker-2"])
def test_the_brokers_of_the_compose_file_have_settings_that_exist(broker: str) -> None:
    services = compose()["services"]
    described = services[broker]
    image = re.findall(r"(\w+)=(\S+)", (DEPLOY / "Containerfile").read_text())
    environment = {name: value for name, value in image if name.startswith(PREFIX)} | described["environment"]
    settings = load({}, environment=environment).settings
    assert settings.store.startswith("postgresql://") and settings.blobs is not None
    assert "@postgres/" in settings.store and "http://objects:8333" in settings.blobs
    assert seconds(described["stop_grace_period"]) > settings.drain_s + 10
    assert described["depends_on"].keys() <= services.keys()
    inside = {int(port.rpartition(":")[2]) for port in described["ports"]}
    assert inside == {settings.flight_port, settings.http_port, settings.grpc_port}
    assert all(port.startswith("127.0.0.1:") for port in described["ports"]), "insecure, so for this machine alone"
    assert described["build"]["dockerfile"] == "deploy/Containerfile"


def test_the_image_has_the_brokers_ports_and_does_not_run_as_root() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    settings = load({}, environment={}).settings
    exposed = re.findall(r"^EXPOSE (.+)$", text, re.MULTILINE)[0].split()
    assert [int(port) for port in exposed] == [settings.flight_port, settings.http_port, settings.grpc_port]
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert 'ENTRYPOINT ["anabranch", "serve"]' in text


def test_published_ports_are_each_brokers_own() -> None:
    published = [port for service in compose()["services"].values() for port in service.get("ports", ())]
    assert len({port.rpartition(":")[0] for port in published}) == len(published) == 6
