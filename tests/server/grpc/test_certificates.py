"""The certificates of the gRPC front end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

import anabranch as ab
from anabranch.security.guard import OpenGuard
from anabranch.security.tls import TlsMaterial
from anabranch.server.broker import Broker
from anabranch.server.config import load
from anabranch.server.counters import Counters
from anabranch.server.grpc import front_end as module
from anabranch.server.grpc.front_end import GrpcFrontEnd


def test_of_several_new_certificates_the_newest_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, files = trustme.CA(), (tmp_path / "server.pem", tmp_path / "server.key")
    files[1].touch(mode=0o600)

    def put() -> None:
        issued = authority.issue_cert("localhost")
        files[0].write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        files[1].write_bytes(issued.private_key_pem.bytes())

    def configuration(material: TlsMaterial) -> Any:
        return material.certificate

    put()
    given: list[Any] = []
    monkeypatch.setattr(module, "_configuration", configuration)
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda *args, **_: given.extend(args))
    settings = load({"tls_certificate": str(files[0]), "tls_key": str(files[1])}, environment={}).settings
    with ab.connect("memory://") as store:
        front_end = GrpcFrontEnd(Broker(store, OpenGuard()), settings, Counters())
        front_end._credentials()
        first, fetch = given
        assert first == files[0].read_bytes() and fetch() is None
        watch = front_end._watch
        assert watch is not None
        for _ in range(2):
            put()
            watch.look()
        assert fetch() == files[0].read_bytes()
        assert fetch() is None
        watch.close()
