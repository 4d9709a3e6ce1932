"""Certificates: clear errors, new ones while the broker runs, and callers that show their own."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn
from cryptography.exceptions import UnsupportedAlgorithm

from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.ports import Runtime
from anabranch.security.dev_tls import dev_tls
from anabranch.security.tls import (
    TlsFiles,
    TlsMaterial,
    TlsWatch,
    certificate_name,
    load_tls,
    reload_certificate,
    server_context,
)
from anabranch.server.edge.protocol import timed_protocol
from tests.waiting import until, until_ended

NOW = Runtime().clock.now()


def put(folder: Path, issued: trustme.LeafCert, name: str = "server") -> TlsFiles:
    files = TlsFiles(folder / f"{name}.pem", folder / f"{name}.key")
    files.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    files.key.touch(mode=0o600)
    files.key.write_bytes(issued.private_key_pem.bytes())
    return files


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> TlsFiles:
    return put(tmp_path, authority.issue_cert("localhost", "127.0.0.1"))


def test_what_is_loaded_does_not_show_its_key(files: TlsFiles) -> None:
    loaded = load_tls(files, now=NOW)
    assert loaded.expires_at > NOW
    assert b"PRIVATE" in loaded.key and "PRIVATE" not in repr(loaded)


def broken(files: TlsFiles, authority: trustme.CA, how: str) -> TlsFiles:
    folder = files.certificate.parent
    past = datetime.now(UTC) - timedelta(days=1)
    match how:
        case "missing":
            files.certificate.unlink()
        case "folder":
            return TlsFiles(folder, files.key)
        case "no PEM":
            files.certificate.write_text("hello")
        case "no key":
            files.key.write_text("hello")
        case "open to all":
            files.key.chmod(0o644)
        case "of another":
            return TlsFiles(files.certificate, put(folder, authority.issue_cert("x"), "x").key)
        case "expired":
            return put(folder, authority.issue_cert("x", not_before=past - timedelta(days=1), not_after=past), "old")
        case "encrypted":
            from cryptography.hazmat.primitives import serialization as form

            key = form.load_pem_private_key(files.key.read_bytes(), None)
            locked = form.BestAvailableEncryption(b"hunter2")
            files.key.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked))
        case "no client CA":
            return TlsFiles(files.certificate, files.key, folder / "none.pem")
    return files


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", "the certificate in .*server.pem can't be read: No such file"),
        ("folder", "can't be read: Is a directory"),
        ("no PEM", "holds no certificate"),
        ("no key", "holds no private key"),
        ("open to all", "chmod 600"),
        ("of another", "does not belong to the first certificate"),
        ("expired", "not now"),
        ("encrypted", "is encrypted"),
        ("no client CA", "CA of clients' certificates in .* can't be read"),
    ],
)
def test_files_that_can_t_be_used_are_refused_with_the_reason(
    files: TlsFiles, authority: trustme.CA, how: str, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        load_tls(broken(files, authority, how), now=NOW)


def test_a_certificate_is_not_used_before_its_time_nor_after_it(files: TlsFiles) -> None:
    end = load_tls(files, now=NOW).expires_at
    load_tls(files, now=Micros(end - 1))
    for now in (end, Micros(0)):
        with pytest.raises(InvalidArgument, match="is valid from"):
            load_tls(files, now=now)


def test_changed_files_are_loaded_and_broken_ones_are_not(files: TlsFiles, authority: trustme.CA) -> None:
    changes: list[TlsMaterial] = []
    watch = TlsWatch(files, Runtime(), changes.append)
    first = watch.material
    watch.look()
    good = files.certificate.read_bytes()
    files.certificate.write_text("half a fi")
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            watch.look()
    assert (watch.material, changes) == (first, [])
    files.certificate.write_bytes(good)
    watch.look()
    put(files.certificate.parent, authority.issue_cert("localhost", "127.0.0.1"))
    watch.look()
    assert changes == [watch.material] and watch.material != first
    watch.close()


def test_a_change_whose_use_failed_is_used_at_the_next_look(files: TlsFiles, authority: trustme.CA) -> None:
    used: list[TlsMaterial] = []

    def use(material: TlsMaterial) -> None:
        used.append(material)
        if len(used) == 1:
            raise InvalidArgument("too many open files")

    watch = TlsWatch(files, Runtime(), use)
    put(files.certificate.parent, authority.issue_cert("localhost"))
    with pytest.raises(InvalidArgument):
        watch.look()
    watch.look()
    watch.look()
    assert used == [watch.material] * 2
    watch.close()


def test_a_change_while_the_files_are_first_read_is_noticed(
    files: TlsFiles, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_and_change(files: TlsFiles, *, now: Micros) -> TlsMaterial:
        loaded = load_tls(files, now=now)
        put(files.certificate.parent, authority.issue_cert("localhost"))
        return loaded

    changes: list[TlsMaterial] = []
    with monkeypatch.context() as patched:
        patched.setattr("anabranch.security.tls.load_tls", load_and_change)
        watch = TlsWatch(files, Runtime(), changes.append)
    watch.look()
    assert len(changes) == 1
    watch.close()


def test_a_key_of_a_kind_that_is_not_supported_is_refused(files: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise UnsupportedAlgorithm("Curve 1.2.156 is not supported")

    monkeypatch.setattr("anabranch.security.tls.load_pem_private_key", load)
    with pytest.raises(InvalidArgument, match=r"of a kind that is not supported: Curve 1.2.156"):
        load_tls(files, now=NOW)


async def who(scope: Any, _receive: Any, send: Any) -> None:
    body = json.dumps(scope["extensions"]["tls"]["client_cert_name"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(context: ssl.SSLContext) -> Iterator[int]:
    """A server with this context on a free port."""
    config = uvicorn.Config(
        who,
        port=0,
        http=timed_protocol(10.0),
        lifespan="off",
        log_level="critical",
        ssl_context_factory=lambda _config, _default: context,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    until_ended(thread)


def ask(port: int, trusted: str, client: Path | None = None) -> tuple[Any, Any]:
    """The name that the server saw, and the server's certificate."""
    context = ssl.create_default_context(cadata=trusted)
    if client is not None:
        context.load_cert_chain(client)
    connection = http.client.HTTPSConnection("localhost", port, context=context)
    connection.request("GET", "/")
    certificate = connection.sock.getpeercert(binary_form=True)
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found, certificate


def test_a_new_certificate_is_served_without_a_restart(files: TlsFiles, authority: trustme.CA) -> None:
    trusted = authority.cert_pem.bytes().decode()
    context = server_context(files)
    watch = TlsWatch(files, Runtime(), lambda _: reload_certificate(context, files))
    with serving(context) as port:
        name, first = ask(port, trusted)
        assert name is None
        put(files.certificate.parent, authority.issue_cert("localhost", "127.0.0.1"))
        watch.look()
        assert ask(port, trusted)[1] != first
    watch.close()


def test_a_caller_is_known_by_its_certificate_and_others_are_turned_away(tmp_path: Path) -> None:
    files = dev_tls(tmp_path, ids=SystemIds(), now=NOW)
    folder = tmp_path / "tls"
    trusted = (folder / "ca.pem").read_text()
    stranger = put(tmp_path, trustme.CA().issue_cert("client.localhost"), "stranger")
    both = tmp_path / "stranger.both"
    both.write_bytes(stranger.key.read_bytes() + stranger.certificate.read_bytes())
    mutual = TlsFiles(files.certificate, files.key, folder / "ca.pem")
    with serving(server_context(mutual)) as port:
        assert ask(port, trusted, folder / "client.pem")[0] == "client.localhost"
        assert ask(port, trusted)[0] is None
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(port, trusted, both)
    with serving(server_context(mutual, client_required=True)) as port:
        assert ask(port, trusted, folder / "client.pem")[0] == "client.localhost"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(port, trusted)


def test_callers_of_a_new_authority_are_known_without_a_restart(
    files: TlsFiles, authority: trustme.CA, tmp_path: Path
) -> None:
    trusted, new = authority.cert_pem.bytes().decode(), trustme.CA()
    stranger = put(tmp_path, new.issue_cert("client.localhost"), "client")
    both = tmp_path / "client.both"
    both.write_bytes(stranger.key.read_bytes() + stranger.certificate.read_bytes())
    with_callers = TlsFiles(files.certificate, files.key, tmp_path / "callers.pem")
    (tmp_path / "callers.pem").write_bytes(authority.cert_pem.bytes())
    context = server_context(with_callers, client_required=True)
    watch = TlsWatch(with_callers, Runtime(), lambda _: reload_certificate(context, with_callers))
    with serving(context) as port:
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(port, trusted, both)
        (tmp_path / "callers.pem").write_bytes(authority.cert_pem.bytes() + new.cert_pem.bytes())
        watch.look()
        assert ask(port, trusted, both)[0] == "client.localhost"
    watch.close()


def test_certificates_for_development_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    files = dev_tls(tmp_path, ids=SystemIds(), now=NOW)
    folder = tmp_path / "tls"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    before = {file: file.read_bytes() for file in folder.iterdir()}
    assert dev_tls(tmp_path, ids=SystemIds(), now=NOW) == files
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    other = dev_tls(tmp_path, hosts=["broker.example.com"], ids=SystemIds(), now=NOW)
    assert other != files
    assert {file: file.read_bytes() for file in before} == before, "clients still trust the same CA"
    (folder / "ca.key").write_text("hello")
    with pytest.raises(InvalidArgument, match="to make a new one"):
        dev_tls(tmp_path, ids=SystemIds(), now=NOW)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="can't be kept"):
        dev_tls(tmp_path / "file", ids=SystemIds(), now=NOW)


def test_the_name_of_a_certificate_is_its_alternative_name_or_its_common_name() -> None:
    subject = ((("organizationName", "o"),), (("commonName", "cn"),))
    assert certificate_name(None) is certificate_name({}) is certificate_name({"subject": ()}) is None
    assert certificate_name({"subject": subject}) == "cn"
    names = (("IP Address", "10.0.0.1"), ("email", "a@b"), ("URI", "spiffe://x/y"), ("DNS", "d"))
    assert certificate_name({"subject": subject, "subjectAltName": names}) == "d"
    assert certificate_name({"subject": subject, "subjectAltName": names[:3]}) == "spiffe://x/y"
