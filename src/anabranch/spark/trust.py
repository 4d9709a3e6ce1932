"""Java trusts the certificates of a private authority, beside those that it trusts anyway."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from anabranch.spark.cache import cache_folder

__all__ = ["trust"]

_STORE: Final = "javax.net.ssl.trustStore"
_PASSWORD: Final = "changeit"  # Java's own: what it locks is public
_MARK: Final = "anabranch.trusts"


def trust(jvm: Any, authority: str) -> None:
    """Have this Java trust the authority in a PEM file, for every connection that it makes from now on. Where somebody
    named a trust store to Java, that one counts and stays. Raises OSError where the file can't be read, and what Java
    raises for one that holds no certificate."""
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
    # Who asks for Java's default settings gets those that were made when they were first asked for.
    context = jvm.javax.net.ssl.SSLContext.getInstance("TLS")
    context.init(None, None, None)
    jvm.javax.net.ssl.SSLContext.setDefault(context)


def _own_store(jvm: Any) -> str:
    security = Path(jvm.java.lang.System.getProperty("java.home"), "lib", "security")
    return str(next((each for name in ("jssecacerts", "cacerts") if (each := security / name).exists()), "/dev/null"))
