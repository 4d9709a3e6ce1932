"""A supervisor hears when the broker is ready."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from anabranch.server.systemd import notify


def test_the_supervisors_socket_gets_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1")
        supervisor.settimeout(10)
        assert supervisor.recv(100) == b"READY=1"


def test_without_a_supervisor_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("STOPPING=1")
