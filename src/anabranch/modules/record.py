"""The catalog's rows of modules: found, stored and removed."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.module_version import MODULE_CODE, MODULE_VERSION, ModuleKey, ModuleVersion, module_prefix
from anabranch.errors import ModuleNotFound

__all__ = ["all_versions", "current", "drop_module", "need_versions", "put_version", "versions_of"]


def all_versions(txn: Reading) -> list[ModuleVersion]:
    """All versions of all modules, by name and number."""
    return [version for _, version in txn.states(MODULE_VERSION)]


def current(versions: Iterable[ModuleVersion]) -> list[ModuleVersion]:
    """The last version of each module; `versions` are in order."""
    return list({version.module: version for version in versions}.values())


def versions_of(txn: Reading, name: str) -> list[ModuleVersion]:
    """The versions of a module that are kept, oldest first."""
    return [version for _, version in txn.states(MODULE_VERSION, prefix=module_prefix(name))]


def need_versions(txn: Reading, name: str) -> list[ModuleVersion]:
    """The same, at least one. Raises ModuleNotFound."""
    found = versions_of(txn, name)
    if not found:
        raise ModuleNotFound(name)
    return found


def put_version(txn: Writing, version: ModuleVersion, code: bytes) -> None:
    """Store a version with its code, and remove the oldest beyond `limits.MODULE_VERSIONS_MAX`."""
    txn.put_state(MODULE_CODE, version.digest, code)
    txn.put_state(MODULE_VERSION, ModuleKey(version.module, version.number), version)
    _drop(txn, versions_of(txn, version.module)[: -limits.MODULE_VERSIONS_MAX])


def drop_module(txn: Writing, name: str) -> None:
    """Remove a module with its versions. Raises ModuleNotFound."""
    _drop(txn, need_versions(txn, name))


def _drop(txn: Writing, versions: Iterable[ModuleVersion]) -> None:
    for version in versions:
        txn.drop_state(MODULE_VERSION, ModuleKey(version.module, version.number))
    kept = {version.digest for version in all_versions(txn)}
    for digest in {version.digest for version in versions} - kept:
        txn.drop_state(MODULE_CODE, digest)
