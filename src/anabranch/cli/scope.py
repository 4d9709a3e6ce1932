"""`anabranch scope`: namespaces of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.elsewhere import (
    ToBlobsOption,
    ToHistoryOption,
    ToKeysOption,
    ToStoreOption,
    WindowOption,
    finish,
    open_elsewhere,
)
from anabranch.cli.options import JsonOption, StoreOption, TagOption, new_app, open_names, open_store, parse_tags
from anabranch.cli.output import confirm, counted, iso_time, print_columns, print_json, say
from anabranch.cli.progress import Meter
from anabranch.errors import PipelineRunning

if TYPE_CHECKING:
    from anabranch.cli.options import Names
    from anabranch.core.copy import Copied
    from anabranch.model.stream import Scope

app = new_app("Create, list, copy, rename and delete scopes: the namespaces of streams.")

ScopeArgument = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope's name.")]


@app.command()
def create(
    name: ScopeArgument,
    tag: TagOption = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Do nothing if there is such a scope.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Create a scope, and the store where there is none.

    Examples:

      anabranch scope create iot
      anabranch scope create iot --tag owner=plant-7
    """
    tags = parse_tags(tag)
    with open_names(store, create=True) as names:
        scope = names.streams.create_scope(name, tags=tags, exist_ok=exist_ok)
    if as_json:
        print_json(_described(scope))
    else:
        say(f"scope '{name}' is there")


@app.command("list")
def list_scopes(
    internal: Annotated[bool, typer.Option("--internal", help="The store's own scopes too.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """List the scopes by name.

    Examples:

      anabranch scope list
      anabranch scope list --json | jq -r '.[].name'
    """
    with open_names(store) as names, names.catalog.reading() as reading:
        scopes = [scope for scope in reading.scopes() if internal or not scope.name.startswith("_")]
    if as_json:
        print_json([_described(scope) for scope in scopes])
    else:
        rows = [(s.name, iso_time(s.created_at), " ".join(f"{k}={v}" for k, v in s.tags.items())) for s in scopes]
        print_columns(("SCOPE", "CREATED", "TAGS"), rows)


@app.command()
def delete(
    name: ScopeArgument,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="With all streams and aliases in it, the store's own too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
) -> None:
    """Delete a scope that holds no streams; with --recursive, one with all it holds. Interrupted and asked again, that
    goes on. It is refused while a pipeline that uses streams of the scope runs.

    Examples:

      anabranch scope delete iot
      anabranch scope delete iot --recursive
    """
    with open_names(store) as names:
        if not recursive:
            names.streams.scope(name)
            confirm(f"Delete scope '{name}'?", yes=yes)
            names.streams.delete_scope(name)
        else:
            events, streams = _held(names, name)
            users = _pipelines(names, name)
            also = f", which {', '.join(users)} used" if users else ""
            confirm(
                f"Delete scope '{name}' with {counted(streams, 'stream')} and {counted(events, 'event')}{also}?",
                yes=yes,
            )
            with Meter(f"deleting {name}", unit_bytes=False) as meter:
                names.streams.delete_scope(name, recursive=True, progress=meter.show)
    say(f"scope '{name}' is deleted")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SCOPE", help="The scope whose streams are copied.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The scope of the copies; made if need be.")],
    internal: Annotated[bool, typer.Option("--internal", help="The store's own streams too.")] = False,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Ephemeral streams too; their copies last.")] = False,
    to_store: ToStoreOption = None,
    to_blobs: ToBlobsOption = None,
    to_history: ToHistoryOption = None,
    to_keys: ToKeysOption = None,
    window: WindowOption = 4,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Copy all streams of a scope into another, at once and whatever their size. Asked again, it goes on where it was
    interrupted, and copies what is new. Aliases of streams within the scope come along. Into another store the bytes are
    moved by one job for all streams: see `anabranch job`.

    Examples:

      anabranch scope copy iot iot-before-the-change
      anabranch scope copy iot iot --to-store /mnt/usb/river
    """
    if to_store is not None:
        with (
            open_store(store) as opened,
            open_elsewhere(to_store, to_blobs, to_history, to_keys) as other,
            Meter(f"copying {source}") as meter,
        ):
            job = other.jobs.copy_scope(
                opened, source, target, internal=internal, ephemeral=ephemeral, window=window, progress=meter.show
            )
            moved: list[Copied] = finish(job, meter, to_store)
        _copied(target, moved, as_json, job=job.id)
        return
    with open_names(store) as names, Meter(f"copying {source}", unit_bytes=False) as meter:
        copies = names.streams.copy_scope(source, target, internal=internal, ephemeral=ephemeral, progress=meter.show)
    _copied(target, copies, as_json)


def _copied(target: str, copies: list[Copied], as_json: bool, **more: str) -> None:
    if as_json:
        print_json({"name": target, "streams": len(copies), "copies": [each.to_json() for each in copies], **more})
    else:
        say(f"scope '{target}' holds copies of {counted(len(copies), 'stream')}")


@app.command()
def rename(
    name: ScopeArgument,
    to: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Give a scope another name, all at once. Open readers and writers of its streams go on; who uses an old name is told
    the new one. Pipelines that name streams of the scope have to be changed; it is refused while one runs.

    Example:

      anabranch scope rename iot plant-7
    """
    with open_names(store) as names:
        _pipelines(names, name)
        scope = names.streams.move_scope(name, to)
    if as_json:
        print_json({**_described(scope), "former": name})
    else:
        say(f"scope '{name}' is called '{scope.name}' now")


app.command("move", help="The same as `rename`.", hidden=True)(rename)


def _held(names: Names, scope: str) -> tuple[int, int]:
    """The events and the streams that the scope holds."""
    from anabranch.cli.show import summaries

    with names.catalog.reading() as reading:
        rows = summaries(reading, scope, internal=True)
    return sum(row["events"] for row in rows), len(rows)


def _pipelines(names: Names, scope: str) -> list[str]:
    """The pipelines that read or write streams of the scope. Raises PipelineRunning where one runs."""
    from anabranch.spark.pipeline_row import rows

    found = []
    for row in rows(names.catalog):
        streams = [each for output in row.outputs for each in (output.target, output.late, *output.sources) if each]
        if any(each.partition("/")[0] == scope for each in streams):
            if row.holder is not None and row.alive(names.now):
                raise PipelineRunning(row.name, row.holder.pid, row.holder.host)
            found.append(f"pipeline '{row.name}'")
    return found


def _described(scope: Scope) -> dict[str, Any]:
    return {"name": scope.name, "created_at": iso_time(scope.created_at), "tags": dict(scope.tags)}
