"""Certificates for development, by a CA of their own: `--dev-tls`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.model.ids import Micros
from anabranch.runtime.ids import Ids, token
from anabranch.security.tls import TlsFiles, load_tls

FOLDER: Final = "tls"
CA: Final = "ca.pem"
_CA_KEY: Final = "ca.key"
CLIENT: Final = "client.pem"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")


def dev_tls(store: Path, *, hosts: Sequence[str] = (), ids: Ids, now: Micros) -> TlsFiles:
    """Certificates for these hosts and loopback, in the folder `tls` of a store's folder; made if they are missing or
    expired. Only their owner may read them.

    `ca.pem` is what clients trust, `client.pem` a client's certificate and key for mTLS. The CA stays the same, so
    clients that trust it still can. Several processes may do so at once. Raises InvalidArgument, MissingExtra."""
    with optional("--dev-tls", "server"):
        from trustme import CA as Authority  # noqa: N811 - the module's word is no constant
    folder = store / FOLDER
    names = tuple(dict.fromkeys([*hosts, *HOSTS]))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / _CA_KEY).exists():
            made = Authority(organization_name="Anabranch, for development")
            both = made.private_key_pem.bytes() + made.cert_pem.bytes()
            _put(folder / _CA_KEY, both, ids, replace=False)
        both = (folder / _CA_KEY).read_bytes()
        split = both.index(b"-----BEGIN CERTIFICATE-----")
        authority = Authority.from_pem(both[split:], both[:split])
        _put(folder / CA, both[split:], ids)
        server = folder / f"server-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}.pem"
        for file, common, subjects in ((server, None, names), (folder / CLIENT, "client", ("client.localhost",))):
            if not _is_usable(file, now):
                issued = authority.issue_cert(*subjects, common_name=common)
                chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
                _put(file, issued.private_key_pem.bytes() + chain, ids)
    except OSError as exc:
        raise InvalidArgument(f"the certificates can't be kept in {folder}: {exc.strerror}") from exc
    except ValueError as exc:
        raise InvalidArgument(f"the CA in {folder / _CA_KEY} can't be read; delete {folder} to make a new one") from exc
    return TlsFiles(server, server)


def _is_usable(file: Path, now: Micros) -> bool:
    try:
        load_tls(TlsFiles(file, file), now=now)
    except InvalidArgument:
        return False
    return True


def _put(file: Path, text: bytes, ids: Ids, *, replace: bool = True) -> None:
    """Write a file whole, readable by its owner alone. Without `replace` the file that another process has written
    meanwhile stays."""
    fresh = file.with_name(f".{file.name}.{token(ids)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(text)
    try:
        if replace:
            fresh.replace(file)
        else:
            os.link(fresh, file)
    except FileExistsError:
        pass
    finally:
        fresh.unlink(missing_ok=True)
