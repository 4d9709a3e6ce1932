"""The files of a version: wheels, WebAssembly modules and resources, checked when they are uploaded, and stored once by
their SHA-256 for all versions that have them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.query_version import QUERY_CONTENT, QUERY_VERSION, FileKind, QueryFile, QueryVersion
from anabranch.deployments.wheels import read_wheel
from anabranch.errors import CorruptCatalog, InvalidArgument, TooLarge

__all__ = ["check_files", "contents_of", "drop_contents", "kind_of_file", "put_contents", "unpacked_wheels"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]{0,127}\Z")
_KINDS: Final[Mapping[str, FileKind]] = {".whl": "wheel", ".wasm": "wasm"}
_WASM: Final = b"\0asm"


def kind_of_file(name: str) -> FileKind:
    """What a file is, by the ending of its name."""
    return next((kind for ending, kind in _KINDS.items() if name.lower().endswith(ending)), "resource")


def check_files(files: Mapping[str, bytes]) -> tuple[QueryFile, ...]:
    """Check files that come from outside, by their names. Returns them in the order of their names. Nothing of them is run.
    Raises InvalidArgument, TooLarge."""
    if len(files) > limits.DEPLOYMENT_FILES_MAX:
        raise InvalidArgument(
            f"expected at most {limits.DEPLOYMENT_FILES_MAX} files, got {len(files)}: put several into one"
        )
    for name in files:
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidArgument(
                f"{name!r:.200} is not a name for a file of a query: expected letters, digits, '_', '-', '+' and '.'"
            )
    if len({name.lower() for name in files}) < len(files):
        raise InvalidArgument("two files have names that differ only in case")
    size = sum(map(len, files.values()))
    if size > limits.DEPLOYMENT_FILES_BYTES_MAX:
        raise TooLarge("the files of a query", size, limits.DEPLOYMENT_FILES_BYTES_MAX)
    unpacked_wheels(files)
    for name, content in files.items():
        if kind_of_file(name) == "wasm":
            if not content.startswith(_WASM):
                raise InvalidArgument(f"'{name}' is not a WebAssembly module: it does not begin with 00 61 73 6d")
            if len(content) > limits.MODULE_BYTES_MAX:
                raise TooLarge(f"'{name}'", len(content), limits.MODULE_BYTES_MAX)
    return tuple(
        QueryFile(name, kind_of_file(name), hashlib.sha256(files[name]).hexdigest(), len(files[name]))
        for name in sorted(files)
    )


def unpacked_wheels(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files in all wheels among these, by path. Raises InvalidArgument, also if two wheels have the same file, or all
    together have more than `limits.WHEELS_UNPACKED_BYTES_MAX`."""
    found: dict[str, bytes] = {}
    owners: dict[str, str] = {}
    left = limits.WHEELS_UNPACKED_BYTES_MAX
    for name in sorted(files):
        if kind_of_file(name) != "wheel":
            continue
        unpacked = read_wheel(name, files[name], unpacked_bytes_max=min(left, limits.WHEEL_UNPACKED_BYTES_MAX))
        left -= sum(map(len, unpacked.values()))
        for path, content in unpacked.items():
            if (owner := owners.setdefault(path.casefold(), name)) != name:
                raise InvalidArgument(f"wheels '{owner}' and '{name}' both have the file '{path}'")
            found[path] = content
    return found


def put_contents(txn: Writing, files: Iterable[QueryFile], contents: Mapping[str, bytes]) -> None:
    """Store the contents of files, by name. Raises TooLarge if all files of the store get too large together."""
    known = {file.digest: file.size for _, version in txn.states(QUERY_VERSION) for file in version.files}
    for file in files:
        if file.digest not in known:
            known[file.digest] = file.size
            txn.put_state(QUERY_CONTENT, file.digest, contents[file.name])
    if (size := sum(known.values())) > limits.DEPLOYMENT_ALL_FILES_BYTES_MAX:
        raise TooLarge("the files of all queries", size, limits.DEPLOYMENT_ALL_FILES_BYTES_MAX)


def drop_contents(txn: Writing, dropped: Iterable[QueryVersion]) -> None:
    """Remove the contents of files that only the versions `dropped` had. These versions are removed already."""
    digests = {file.digest for version in dropped for file in version.files}
    if digests:
        kept = {file.digest for _, version in txn.states(QUERY_VERSION) for file in version.files}
        for digest in sorted(digests - kept):
            txn.drop_state(QUERY_CONTENT, digest)


def contents_of(txn: Reading, files: Sequence[QueryFile]) -> dict[str, bytes]:
    """The contents of files by name, each checked against its SHA-256. Raises CorruptCatalog."""
    found: dict[str, bytes] = {}
    for file in files:
        content = txn.state(QUERY_CONTENT, file.digest)
        if content is None or hashlib.sha256(content).hexdigest() != file.digest:
            reason = "is missing" if content is None else "does not match its SHA-256"
            raise CorruptCatalog(f"the content of the file '{file.name}' of a query {reason}", "states", file.digest)
        found[file.name] = content
    return found
