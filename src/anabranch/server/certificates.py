"""The certificates of a broker's front ends, from its settings."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from anabranch.runtime.ports import Runtime
from anabranch.security.dev_tls import CA, dev_tls
from anabranch.security.tls import TlsFiles, TlsWatch, reload_certificate, server_context
from anabranch.server.config import ServerSettings
from anabranch.store.addresses import folder_of

_HOME = ".anabranch"
_ANY = ("0.0.0.0", "::")


def with_dev_tls(settings: ServerSettings, runtime: Runtime) -> ServerSettings:
    """With `dev_tls`, the settings with the files of certificates that were made: in the store's folder, or for a store
    elsewhere in `~/.anabranch`. Raises InvalidArgument."""
    if not settings.dev_tls:
        return settings
    folder = Path.home() / _HOME if "://" in settings.store else folder_of(settings.store)
    hosts = () if settings.on_loopback else (socket.gethostname(), *(() if settings.host in _ANY else (settings.host,)))
    files = dev_tls(folder, hosts=hosts, ids=runtime.ids, now=runtime.clock.now())
    return settings.model_copy(update={"dev_tls": False, "tls_certificate": files.certificate, "tls_key": files.key})


def made_authority(asked: ServerSettings, secured: ServerSettings) -> Path | None:
    """The file of the CA that clients trust, where `with_dev_tls` made `secured` from `asked`; else None."""
    if not asked.dev_tls or secured.tls_certificate is None:
        return None
    return (secured.tls_certificate.parent / CA).absolute()


class ServerCertificate:
    """A TLS context that follows its files: see `TlsWatch`. Close it."""

    def __init__(self, files: TlsFiles, runtime: Runtime) -> None:
        self._watch = TlsWatch(files, runtime, lambda _: reload_certificate(self.context, files))
        self.context: ssl.SSLContext = server_context(files, client_required=files.client_ca is not None)

    @classmethod
    def of(cls, settings: ServerSettings, runtime: Runtime) -> ServerCertificate | None:
        """That of the settings; None for a broker without TLS. Raises InvalidArgument for files that can't be used."""
        if settings.tls_certificate is None or settings.tls_key is None:
            return None
        return cls(TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca), runtime)

    def close(self) -> None:
        """End the task. A second call does nothing."""
        self._watch.close()
