"""The public keys whose signatures a store accepts on queries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from anabranch.cli.declare import argument, option
from anabranch.cli.options import JsonOption, open_catalog
from anabranch.cli.output import iso_time, print_columns, print_json, print_note
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional


def trust(
    key: Annotated[Path | None, argument("[KEY.pem]", "A public Ed25519 key to trust.")] = None,
    label: Annotated[str | None, option("--label", "TEXT", "A label for the key. Default: the file's name.")] = None,
    remove: Annotated[
        str | None, option("--remove", "KEY", "Stop trusting this key: its label, or its first digits.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the keys whose signatures the store accepts on queries, add one, or remove one.

    From the first key on, every query must be signed: unsigned ones are refused when they are deployed, and no host starts
    them. This
    needs the store's own address; a broker does not do it.

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
