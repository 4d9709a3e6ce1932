"""Makes Java trust a private certificate authority, in addition to those that it already trusts."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from anabranch.spark.session.cache import cache_folder

__all__ = ["trust"]

_STORE: Final = "javax.net.ssl.trustStore"
_PASSWORD: Final = "changeit"  # Java's default; the store holds only public certificates
_MARK: Final = "anabranch.trusts"


def trust(jvm: Any, authority: str) -> None:
    """Make this Java process trust the authority in a PEM file, for all connections that it opens from now on.

    If Java was started with its own trust store setting, that one stays in effect and nothing changes. Raises OSError
    if the file can't be read, and Java's error if it holds no certificate.
    """
    pem = Path(authority).read_bytes()
    system = jvm.java.lang.System
    trusted = (system.getProperty(_MARK) or "").split()
    digest = hashlib.sha256(pem).hexdigest()
    if digest in trusted or (not trusted and system.getProperty(_STORE) is not None):
        return
    present = system.getProperty(_STORE) or _own_store(jvm)
    letters = jvm.java.io.CharArrayWriter()
    letters.write(_PASSWORD, 0, len(_PASSWORD))
    known = jvm.java.security.KeyStore.getInstance("JKS")
    with closing(jvm.java.io.FileInputStream(present)) as stream:
        known.load(stream, None)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    with closing(jvm.java.io.FileInputStream(authority)) as stream:
        for number, each in enumerate(factory.generateCertificates(stream)):
            known.setCertificateEntry(f"anabranch-{digest[:16]}-{number}", each)
    folder = cache_folder() / "java"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"trust-{hashlib.sha256(' '.join([*trusted, digest]).encode()).hexdigest()[:16]}.jks"
    fresh = made.with_name(f".{made.name}-{jvm.java.lang.ProcessHandle.current().pid()}")
    with closing(jvm.java.io.FileOutputStream(str(fresh))) as stream:
        known.store(stream, letters.toCharArray())
    fresh.replace(made)
    system.setProperty(_STORE, str(made))
    system.setProperty(f"{_STORE}Type", "JKS")
    system.setProperty(f"{_STORE}Password", _PASSWORD)
    system.setProperty(_MARK, " ".join([*trusted, digest]))
    # Java creates its default SSL context once, on first use, so replace it.
    context = jvm.javax.net.ssl.SSLContext.getInstance("TLS")
    context.init(None, None, None)
    jvm.javax.net.ssl.SSLContext.setDefault(context)


def _own_store(jvm: Any) -> str:
    security = Path(jvm.java.lang.System.getProperty("java.home"), "lib", "security")
    return str(next((each for name in ("jssecacerts", "cacerts") if (each := security / name).exists()), "/dev/null"))
