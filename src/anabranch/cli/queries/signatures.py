"""Signs a query, for stores that take signed ones alone, and keeps the public keys whose signatures a store accepts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from anabranch.cli.declare import argument, option, without_store
from anabranch.cli.options import JSON_OPTION, open_catalog
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, print_result
from anabranch.cli.statement_options import FILE_ARGUMENT, PARAM_OPTION, QueryFileOptions, translated_statements
from anabranch.cli.translate import DIALECT_OPTION
from anabranch.core.pairs import parse_pairs
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional


@without_store
def sign(
    file: Path = FILE_ARGUMENT,
    key: Path = option(
        "--key", "KEY.pem", "The private Ed25519 key; only its owner may be able to read the file.", default=...
    ),
    *,
    files: QueryFileOptions,
    param: list[str] | None = PARAM_OPTION,
    dialect: str | None = DIALECT_OPTION,
    out: Path | None = option("--out", "FILE", "Where it is written. Default: FILE.sql.sig."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Sign a file of statements together with the wheels, modules, resources and parameters that it is to be deployed with.

    The signature covers all of these, but not the query's name: they may be deployed under any name. A key is made by:
    openssl genpkey -algorithm ed25519 -out KEY.pem

    Examples:

      anabranch queries sign scores.sql --key alice.pem --wheel scoring-1.0-py3-none-any.whl --resource model.json
      anabranch queries deploy scores scores.sql --wheel scoring-1.0-py3-none-any.whl --resource model.json --signature scores.sql.sig
    """
    from anabranch.deployments.files import check_files
    from anabranch.deployments.signatures import sign_query

    listed = check_files(files.read() or {})
    text = sign_query(key, translated_statements(file, dialect), parse_pairs(param, "a parameter"), listed)
    target = out or file.with_name(f"{file.name}.sig")
    try:
        target.write_text(f"{text}\n", encoding="utf-8")
    except OSError as exc:
        raise InvalidArgument(f"the signature can't be written: {exc}") from exc
    print_result(as_json, {"signature": text, "file": str(target)}, f"the signature is in {target}")


def trust(
    key: Path | None = argument("[KEY.pem]", "A public Ed25519 key to trust.", default=None),
    label: str | None = option("--label", "TEXT", "A label for the key. Default: the file's name."),
    remove: str | None = option("--remove", "KEY", "Stop trusting this key: its label, or its first digits."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List the keys whose signatures the store accepts on queries, add one, or remove one.

    From the first key on, every query must be signed: unsigned ones are refused when they are deployed, and no host starts
    them. This needs the store's own address; a broker does not do it.

    Examples:

      openssl pkey -in alice.pem -pubout -out alice.pub
      anabranch queries trust alice.pub
      anabranch queries trust
      anabranch queries trust --remove alice.pub
    """
    from anabranch.deployments.signatures import TrustedKeys

    if key is not None and remove is not None:
        raise InvalidArgument("pass a key to add, or --remove, not both")
    with open_catalog() as names:
        keys = TrustedKeys(names.changes)
        if key is not None:
            with optional("signatures", "encryption"):
                from anabranch.runtime.signing import public_key
            row = keys.add(public_key(key), label or key.name)
            print_note(f"queries need a signature by {row.label}{' or another trusted key' * (len(keys.list()) > 1)}")
            return
        if remove is not None:
            label = keys.remove(remove).label
            print_note(f"{label} is no longer trusted{'' if keys.list() else '; queries need no signature'}")
            return
        found = keys.list()
    if as_json:
        print_json([asdict(row) | {"added_at": iso_time(row.added_at)} for row in found])
        return
    print_columns(("KEY", "LABEL", "ADDED"), [(row.key, row.label, iso_time(row.added_at)) for row in found])
