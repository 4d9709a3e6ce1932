"""`anabranch scope`: namespaces of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, flag, new_app
from anabranch.cli.options import (
    INTERNAL_OPTION,
    JSON_OPTION,
    MATCH_OPTION,
    TAG_OPTION,
    WITH_TAG_OPTION,
    open_catalog,
    open_store,
    store_path,
)
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, print_result
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.target_store import WINDOW_OPTION, TargetStoreOptions, finish
from anabranch.core.pairs import parse_pairs
from anabranch.errors import PipelineRunning
from anabranch.remote.address import is_broker

if TYPE_CHECKING:
    from anabranch.core.copy import CopyResult
    from anabranch.model.stream import Scope
    from anabranch.store.catalog_store import CatalogStore

app = new_app()

SCOPE_ARGUMENT: Final = argument("SCOPE", "The scope's name.")


@app.command()
def create(
    name: str = SCOPE_ARGUMENT,
    tag: list[str] | None = TAG_OPTION,
    exist_ok: bool = flag("--exist-ok", "Do nothing if the scope exists."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Create a scope, and the store if it does not exist.

    Examples:

      anabranch scope create iot
      anabranch scope create iot --tag owner=plant-7
    """
    tags = parse_pairs(tag, "a tag")
    with open_catalog(create=True) as names:
        scope = names.scopes.create(name, tags=tags, exist_ok=exist_ok)
    print_result(as_json, _described(scope), f"scope '{name}' exists" if exist_ok else f"created scope '{name}'")


@app.command("list")
def list_scopes(
    tag: list[str] | None = WITH_TAG_OPTION,
    match: str | None = MATCH_OPTION,
    internal: bool = flag("--internal", "Also the store's own scopes."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List the scopes by name.

    Examples:

      anabranch scope list
      anabranch scope list --json | jq -r '.[].name'
      anabranch scope list --tag owner=plant-7
    """
    with open_catalog() as names:
        found = names.scopes.list(tag=tag, pattern=match)
    scopes = [scope for scope in found if internal or not scope.name.startswith("_")]
    if as_json:
        print_json([_described(scope) for scope in scopes])
    else:
        rows = [(s.name, iso_time(s.created_at), " ".join(f"{k}={v}" for k, v in s.tags.items())) for s in scopes]
        print_columns(("SCOPE", "CREATED", "TAGS"), rows)


@app.command()
def delete(
    name: str = SCOPE_ARGUMENT,
    recursive: bool = flag("--recursive -r", "Delete all streams and aliases in it too, also the store's own."),
    yes: bool = YES_OPTION,
) -> None:
    """Delete a scope that holds no streams; with --recursive, one with all it holds. If that is interrupted, running it
    again continues. It is refused while a pipeline that uses streams of the scope runs.

    Examples:

      anabranch scope delete iot
      anabranch scope delete iot --recursive
    """
    from anabranch.cli.show import summaries

    with open_catalog() as names:
        if not recursive:
            names.scopes.delete(name)
        else:
            held = summaries(names, name, internal=True)
            events = sum(each["events"] for each in held)
            users = _pipelines(names, name)
            also = f", which {', '.join(users)} used" if users else ""
            confirm(
                f"Delete scope '{name}' with {counted(len(held), 'stream')} and {counted(events, 'event')}{also}?",
                yes=yes,
            )
            with ProgressMeter(f"deleting {name}", unit_bytes=False) as meter:
                names.scopes.delete(name, recursive=True, progress=meter.show)
    print_note(f"scope '{name}' is deleted")


@app.command()
def copy(
    source: str = argument("SCOPE", "The scope to copy."),
    target: str = argument("TARGET", "The scope of the copies; created if it is missing."),
    *,
    internal: bool = INTERNAL_OPTION,
    ephemeral: bool = flag("--ephemeral", "Also ephemeral streams; their copies are permanent."),
    to: TargetStoreOptions,
    window: int = WINDOW_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Copy all streams of a scope into another, at once and whatever their size. Running it again continues where it
    was interrupted, and copies new streams. Aliases of streams within the scope are copied too. Into another store the
    bytes are moved by one job for all streams: see `anabranch job`.

    Examples:

      anabranch scope copy iot iot-before-the-change
      anabranch scope copy iot iot --to-store /mnt/usb/river
    """
    if to.url is not None:
        with (
            open_store() as opened,
            to.open(opened) as other,
            ProgressMeter(f"copying {source}") as meter,
        ):
            job = other.jobs.copy_scope(
                opened, source, target, internal=internal, ephemeral=ephemeral, window=window, progress=meter.show
            )
            moved: list[CopyResult] = finish(job, meter, to.place)
        _copied(target, moved, as_json, job=job.id)
        return
    with open_catalog() as names, ProgressMeter(f"copying {source}", unit_bytes=False) as meter:
        copies = names.scopes.copy(source, target, internal=internal, ephemeral=ephemeral, progress=meter.show)
    _copied(target, copies, as_json)


def _copied(target: str, copies: list[CopyResult], as_json: bool, **more: str) -> None:
    print_result(
        as_json,
        {"name": target, "streams": len(copies), "copies": [each.to_json() for each in copies], **more},
        f"scope '{target}' holds copies of {counted(len(copies), 'stream')}",
    )


@app.command()
def rename(
    name: str = SCOPE_ARGUMENT,
    to: str = argument("NAME", "The new name."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Give a scope another name, atomically. Open readers and writers of its streams continue; using an old name gives
    an error that names the new one. Pipelines that name streams of the scope have to be changed; it is refused while
    one runs.

    Example:

      anabranch scope rename iot plant-7
    """
    with open_catalog() as names:
        _pipelines(names, name)
        scope = names.scopes.rename(name, to)
    print_result(as_json, {**_described(scope), "former": name}, f"scope '{name}' was renamed to '{scope.name}'")


app.command("move", help="The same as `rename`.", hidden=True)(rename)


def _pipelines(names: CatalogStore, scope: str) -> list[str]:
    """Returns the pipelines that read or write streams of the scope. Raises PipelineRunning if one runs."""
    from anabranch.spark.pipelines.record import rows

    if is_broker(store_path()):
        return []  # pipelines run only where the store itself is opened
    found = []
    for row in rows(names.catalog):
        streams = [
            each
            for output in row.outputs
            for each in (output.target, output.late, *output.sides, *output.feedback, *output.sources)
            if each
        ]
        if any(each.partition("/")[0] == scope for each in streams):
            if row.holder is not None and row.alive(names.now):
                raise PipelineRunning(row.name, row.holder.pid, row.holder.host)
            found.append(f"pipeline '{row.name}'")
    return found


def _described(scope: Scope) -> dict[str, Any]:
    return {"name": scope.name, "created_at": iso_time(scope.created_at), "tags": dict(scope.tags)}
