"""`anabranch key`: the keys of encrypted stores."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch import limits
from anabranch.cli.declare import argument, new_app, option, without_store
from anabranch.cli.input_files import read_text
from anabranch.cli.options import JSON_OPTION, invocation, open_catalog, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, print_result
from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional

app = new_app()

_ID_BITS = 32


@app.command()
@without_store
def new(
    file: Path = argument("FILE", "The key file; one that exists gets one more key."),
    key_id: str | None = option("--id", "ID", "The key's id; default: random."),
) -> None:
    """Create a master key and put it first in a key file, which makes it the current one.

    Keep a copy of the file away from the store: without its keys, an encrypted store can't be read at all.

    Examples:

      anabranch key new river.keys
      anabranch --keys file:river.keys scope create iot
    """
    with optional("encryption at rest", "encryption"):
        from anabranch.runtime.keys import new_key_line, parse_keys
    from anabranch.runtime.ids import SystemIds

    ids = SystemIds()
    key_id = key_id or f"key-{ids.bits(_ID_BITS):08x}"
    line = new_key_line(key_id, ids)
    old = read_text(file, what="the key file", bytes_max=limits.KEY_FILE_BYTES_MAX) if file.exists() else ""
    if file.exists() and not file.is_file():
        raise InvalidArgument(f"expected a regular file for the keys, but {file} is none")
    if old and key_id in parse_keys(old, str(file)):
        raise InvalidArgument(f"{file} already has a key '{key_id}'")
    _write(file, line + old)
    print_note(f"key '{key_id}' is the current one of {file}")


def _write(file: Path, text: str) -> None:
    """Replace a file atomically, readable by its owner alone; a full disk or a power cut never loses keys."""
    fresh = file.with_name(f".{file.name}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@app.command()
def show(as_json: bool = JSON_OPTION) -> None:
    """Show which master keys a store needs: only their ids, never a key.

    Example:

      anabranch key show
    """
    from anabranch.catalog.state.store import DATA_KEY, newest

    with open_catalog() as names, names.catalog.reading() as reading:
        rows = sorted((row for _, row in reading.states(DATA_KEY)), key=lambda row: (row.created_at, row.id))
    current = newest(rows).id if rows else None
    if as_json:
        print_json(
            [
                {
                    "data_key": row.id,
                    "master_key": row.master,
                    "made_at": iso_time(row.created_at),
                    "current": row.id == current,
                }
                for row in rows
            ]
        )
    elif rows:
        lines = [(row.id, row.master, iso_time(row.created_at), "yes" if row.id == current else "") for row in rows]
        print_columns(("DATA KEY", "MASTER KEY", "MADE", "SEALS NEW BYTES"), lines)
    else:
        print_note("this store is not encrypted")


@app.command()
def rotate(as_json: bool = JSON_OPTION) -> None:
    """Make the current master key of --keys the store's master key. No event is rewritten.

    The data keys of the store are wrapped with it, and a new data key encrypts what is written from now on. The former
    master keys are then needed only for backups and manifests made before.

    Example:

      anabranch key new river.keys
      anabranch --keys file:river.keys key rotate
    """
    if invocation.keys is None:
        raise InvalidArgument(
            "the location of the old and the new key is missing: anabranch --keys file:/path key rotate"
        )
    with open_store() as opened:
        done = opened.rotate_keys()
    print_result(
        as_json,
        {"master_key": done.master, "rewrapped": done.rewrapped, "data_key": done.data_key},
        f"{counted(done.rewrapped, 'data key')} wrapped with '{done.master}'; a new one encrypts all new data",
    )
