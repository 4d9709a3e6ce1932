"""Certificates of a broker: read with clear errors, and again when their files change."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.runtime.bounded_files import read_bounded
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime

_US = 1_000_000


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with the chain below its CA, its private key (may be in the same file), and with
    `client_ca` the CA of callers' certificates (mTLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What the files hold, checked. The key is not shown. `expires_at` is the end of the certificate."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    expires_at: Micros


def load_tls(files: TlsFiles, *, now: Micros) -> TlsMaterial:
    """Read and check the files. Raises InvalidArgument: a file that can't be read or is no PEM, a key that others may
    read, is encrypted or belongs to another certificate, a certificate that is not valid now."""
    certificate, key = _read(files.certificate, "certificate"), _read(files.key, "private key", private=True)
    chain = _certificates(certificate, files.certificate)
    leaf = chain[0]
    _check_key(key, leaf, files)
    begin, end = (_micros(each) for each in (leaf.not_valid_before_utc, leaf.not_valid_after_utc))
    if not begin <= now < end:
        raise InvalidArgument(
            f"the certificate in {files.certificate} is valid from {_shown(leaf.not_valid_before_utc)} to "
            f"{_shown(leaf.not_valid_after_utc)}, not now ({_shown(datetime.fromtimestamp(now / _US, UTC))})"
        )
    client_ca = None
    if files.client_ca is not None:
        client_ca = _read(files.client_ca, "CA of clients' certificates")
        _certificates(client_ca, files.client_ca)
    return TlsMaterial(certificate, key, client_ca, end)


def server_context(files: TlsFiles, *, client_required: bool = False) -> ssl.SSLContext:
    """A context for servers of HTTP/1.1, from files that `load_tls` has checked; TLS 1.2 or later. With
    `files.client_ca`, a caller's certificate must be signed by that CA; a caller without a certificate is refused only
    with `client_required`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    reload_certificate(context, files)
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED if client_required else ssl.CERT_OPTIONAL
    return context


def reload_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Use the files' certificate for new connections, and trust callers' certificates of a new CA too; open connections
    continue. A former CA stays trusted as long as the context lives. Raises InvalidArgument if a file can't be used."""
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, OSError) as exc:
        raise InvalidArgument(f"the certificate in {files.certificate} can't be used: {exc}") from exc
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (ssl.SSLError, OSError) as exc:
            raise InvalidArgument(f"the CA of clients in {files.client_ca} can't be used: {exc}") from exc


def certificate_name(peer: Mapping[str, Any] | None) -> str | None:
    """The name in a verified client certificate, as `ssl.SSLSocket.getpeercert` returns it: its first subject
    alternative name of the kind DNS, URI or email, in this order, else its common name. None without a certificate or
    without a name."""
    if not peer:
        return None
    names: tuple[tuple[str, str], ...] = peer.get("subjectAltName", ())
    for kind in ("DNS", "URI", "email"):
        for found, name in names:
            if found == kind:
                return name
    for part in peer.get("subject", ()):
        for attribute, value in part:
            if attribute == "commonName":
                return str(value)
    return None


def name_in_certificate(certificate: bytes) -> str | None:
    """`certificate_name` of a verified client certificate in PEM."""
    found = x509.load_pem_x509_certificate(certificate)
    kinds = ((x509.DNSName, "DNS"), (x509.UniformResourceIdentifier, "URI"), (x509.RFC822Name, "email"))
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    common = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return certificate_name(
        {
            "subjectAltName": tuple((text, name) for kind, text in kinds for name in names.get_values_for_type(kind)),
            "subject": tuple((("commonName", str(each.value)),) for each in common),
        }
    )


class TlsWatch:
    """Checks every `limits.TLS_REFRESH_S` whether the files have changed, and then calls `on_change` with their new
    content. If `on_change` raises, it is called again at the next check. Files that can't be used are reported in the
    log; the material that was loaded before stays in use."""

    def __init__(self, files: TlsFiles, runtime: Runtime, on_change: Callable[[TlsMaterial], None]) -> None:
        self._files = files
        self._runtime = runtime
        self._on_change = on_change
        # Taken before the files are read, so that a change during the read is noticed at the next check.
        self._seen = self._stamps()
        self.material = load_tls(files, now=runtime.clock.now())
        self._round = Periodic(runtime, "tls", limits.TLS_REFRESH_S, self.look)
        self._round.start()

    def look(self) -> None:
        """Check the files now. Raises InvalidArgument for files that can't be used."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        material = load_tls(self._files, now=self._runtime.clock.now())
        if material != self.material:
            self._on_change(material)
            self.material = material
        self._seen = stamps

    def close(self) -> None:
        """End the task. A second call does nothing."""
        self._round.close()

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        return tuple(None if file is None else _stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read(file: Path, what: str, *, private: bool = False) -> bytes:
    def check(status: os.stat_result) -> None:
        if private and status.st_mode & stat.S_IRWXO:
            raise InvalidArgument(f"all users may read the {what} in {file}; restrict it with: chmod 600 {file}")

    try:
        return read_bounded(file, limits.KEY_FILE_BYTES_MAX, check=check)
    except OSError as exc:
        raise InvalidArgument(f"the {what} in {file} can't be read: {exc.strerror}") from exc


def _certificates(text: bytes, file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError as exc:
        raise InvalidArgument(
            f"{file} holds no certificate: expected PEM text with -----BEGIN CERTIFICATE-----"
        ) from exc


def _check_key(text: bytes, leaf: x509.Certificate, files: TlsFiles) -> None:
    try:
        key, certificate_key = load_pem_private_key(text, None), leaf.public_key()
    except UnsupportedAlgorithm as exc:
        raise InvalidArgument(
            f"the key in {files.key} or in the certificate in {files.certificate} is of a kind that is not supported: {exc}"
        ) from exc
    except TypeError as exc:
        raise InvalidArgument(f"the private key in {files.key} is encrypted; expected one without a password") from exc
    except ValueError as exc:
        raise InvalidArgument(
            f"{files.key} holds no private key: expected PEM text with -----BEGIN PRIVATE KEY-----"
        ) from exc
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != certificate_key.public_bytes(*form):
        raise InvalidArgument(
            f"the private key in {files.key} does not belong to the first certificate in {files.certificate}"
        )


def _no_password() -> str:
    raise InvalidArgument("the private key is encrypted; expected one without a password")


def _micros(time: datetime) -> Micros:
    return Micros(int(time.timestamp()) * _US)


def _shown(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
