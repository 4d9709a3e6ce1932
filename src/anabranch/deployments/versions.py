"""New versions of queries: made of the given values and the current version, checked and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from anabranch.catalog.port import Writing
from anabranch.catalog.state.query_version import QueryFile, QueryVersion
from anabranch.deployments.files import put_contents
from anabranch.deployments.record import put_version
from anabranch.deployments.signatures import check_signed, signed_message
from anabranch.deployments.texts import check_parameters
from anabranch.model.ids import Micros

__all__ = ["next_version", "put_new", "version_digest"]


def version_digest(
    text: str | None,
    parameters: Mapping[str, str] | None,
    trigger_us: int | None,
    files: Sequence[QueryFile] | None,
    signature: str | None,
) -> str:
    """The SHA-256, in hex, of the content of a version; a value that is not given is None."""
    listed = None if files is None else {file.name: file.digest for file in files}
    parts = [text, parameters, trigger_us, listed, signature]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def next_version(
    current: QueryVersion,
    name: str,
    number: int,
    now: Micros,
    text: str | None,
    parameters: Mapping[str, str] | None,
    trigger_us: int | None,
    files: tuple[QueryFile, ...] | None,
    signature: str | None,
) -> QueryVersion:
    """A version that differs from the current one in the given values. Its signature stays valid if nothing signed
    differs. Raises InvalidSql if its parameters are not those that its statements declare."""
    text = current.text if text is None else text
    parameters = dict(current.parameters) if parameters is None else parameters
    check_parameters(text, parameters)
    trigger_us = current.trigger_us if trigger_us is None else trigger_us
    files = current.files if files is None else files
    if signature is None and signed_message(text, parameters, files) == signed_message(
        current.text, current.parameters, current.files
    ):
        signature = current.signature
    digest = version_digest(text, parameters, trigger_us, files, signature)
    return QueryVersion(name, number, digest, text, parameters, trigger_us, now, files, signature)


def put_new(txn: Writing, version: QueryVersion, contents: Mapping[str, bytes] | None) -> None:
    """Store a new version with the contents of the files that came with it."""
    check_signed(txn, version)
    if contents:
        put_contents(txn, version.files, contents)
    put_version(txn, version)
