"""The WebAssembly modules of a store, as methods of the store."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterable, Sequence

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.module_version import MODULE_CODE, MODULE_VERSION, ModuleKey, ModuleVersion, module_prefix
from anabranch.core.display import Displayed
from anabranch.errors import Conflict, InvalidArgument, ModuleNotFound, TooLarge
from anabranch.model.ids import Micros
from anabranch.model.names import check_plain_name
from anabranch.streams.change import Changes
from anabranch.streams.requests import Result
from anabranch.wasm.signature import FunctionSignature, parse_signature


class Modules(Displayed):
    """WebAssembly modules whose functions queries call, as `wasm.score(celsius)`. A module is kept in versions; queries
    that begin after an `add` use the new one. Each method is one transaction."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog

    def add(
        self, name: str, code: bytes, *, signatures: Sequence[str] = (), request: str | None = None
    ) -> ModuleVersion:
        """Add a module, or a new version of it. If nothing changed, there is no new version.

        `code` is a WebAssembly binary, and `signatures` say which functions it has, as `score(celsius double) -> double`;
        without any they are read from its custom section `anabranch`, one a line. docs/reference/wasm-abi.md says what
        a function has to look like. Nothing of the module is run.

        Raises InvalidArgument if it is not such a module, Conflict if another module has a function of the same name,
        TooLarge, MissingExtra.
        """
        check_plain_name(name, "module")
        if len(code) > limits.MODULE_BYTES_MAX:
            raise TooLarge(f"module '{name}'", len(code), limits.MODULE_BYTES_MAX)
        functions = self._checked(code, signatures)
        digest, texts = hashlib.sha256(code).hexdigest(), tuple(map(str, functions))
        added: builtins.list[ModuleVersion] = []

        def change(txn: Writing, now: Micros) -> Result:
            everything = _all_versions(txn)
            _refuse_others(_current(everything), name, functions)
            size = sum({each.digest: each.size for each in everything}.values())
            if size + len(code) > limits.MODULES_BYTES_MAX:
                raise TooLarge("the code of all modules", size + len(code), limits.MODULES_BYTES_MAX)
            last = next((each for each in reversed(everything) if each.module == name), None)
            if last is None or (last.digest, last.functions) != (digest, texts):
                last = ModuleVersion(name, 1 if last is None else last.number + 1, digest, len(code), texts, now)
                txn.put_state(MODULE_CODE, digest, code)
                txn.put_state(MODULE_VERSION, ModuleKey(name, last.number), last)
                _drop(txn, _versions_of(txn, name)[: -limits.MODULE_VERSIONS_MAX])
            added.append(last)
            return {}

        self._changes.apply(f"add module {name} {digest} {texts}", request, change)
        return added[-1] if added else self.get(name)

    def list(self) -> builtins.list[ModuleVersion]:
        """The current version of each module, by name."""
        with self._catalog.reading() as txn:
            return _current(_all_versions(txn))

    def get(self, name: str) -> ModuleVersion:
        """The current version of a module. Raises ModuleNotFound."""
        with self._catalog.reading() as txn:
            return _need_versions(txn, name)[-1]

    def versions(self, name: str) -> builtins.list[ModuleVersion]:
        """The versions of a module that are kept (the last `limits.MODULE_VERSIONS_MAX`), oldest first. Raises
        ModuleNotFound."""
        with self._catalog.reading() as txn:
            return _need_versions(txn, name)

    def code(self, name: str, version: int | None = None) -> bytes:
        """The bytes of a module, by default of its current version. Raises ModuleNotFound."""
        with self._catalog.reading() as txn:
            found = _versions_of(txn, name)
            if version is not None:
                found = [each for each in found if each.number == version]
            held = txn.state(MODULE_CODE, found[-1].digest) if found else None
        if held is None:
            raise ModuleNotFound(name, version)
        return held

    def remove(self, name: str, *, request: str | None = None) -> None:
        """Remove a module with its versions. Queries under way end as they began. Raises ModuleNotFound."""

        def change(txn: Writing, now: Micros) -> Result:
            _drop(txn, _need_versions(txn, name))
            return {}

        self._changes.apply(f"remove module {name}", request, change)

    def _checked(self, code: bytes, signatures: Sequence[str]) -> tuple[FunctionSignature, ...]:
        from anabranch.wasm.check import check_module
        from anabranch.wasm.engine import WasmEngine

        engine = WasmEngine(self._changes.runtime.tasks)
        try:
            functions = check_module(engine, code, signatures)
        finally:
            engine.close()
        if table := next((each for each in functions if each.table is not None), None):
            raise InvalidArgument(
                f"{table.name} returns a table, so it can only be the handler of a deployed query, which has its module by "
                "--wasm; the functions of a store's modules return a value for each row"
            )
        return functions


def _refuse_others(versions: Sequence[ModuleVersion], name: str, functions: Sequence[FunctionSignature]) -> None:
    taken = {
        parse_signature(text).name.lower(): version.module
        for version in versions
        if version.module != name
        for text in version.functions
    }
    for function in functions:
        if (other := taken.get(function.name.lower())) is not None:
            raise Conflict(f"module '{other}' has a function {function.name} already; rename the one of '{name}'")


def _all_versions(txn: Reading) -> list[ModuleVersion]:
    """All versions of all modules, by name and number."""
    return [version for _, version in txn.states(MODULE_VERSION)]


def _current(versions: Iterable[ModuleVersion]) -> list[ModuleVersion]:
    """The last version of each module; `versions` are in order."""
    return list({version.module: version for version in versions}.values())


def _versions_of(txn: Reading, name: str) -> list[ModuleVersion]:
    """The versions of a module that are kept, oldest first."""
    return [version for _, version in txn.states(MODULE_VERSION, prefix=module_prefix(name))]


def _need_versions(txn: Reading, name: str) -> list[ModuleVersion]:
    """The same, at least one. Raises ModuleNotFound."""
    found = _versions_of(txn, name)
    if not found:
        raise ModuleNotFound(name)
    return found


def _drop(txn: Writing, versions: Iterable[ModuleVersion]) -> None:
    """Remove versions, and the code that no other has."""
    for version in versions:
        txn.drop_state(MODULE_VERSION, ModuleKey(version.module, version.number))
    kept = {version.digest for version in _all_versions(txn)}
    for digest in {version.digest for version in versions} - kept:
        txn.drop_state(MODULE_CODE, digest)
