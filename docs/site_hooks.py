"""Reference pages that are generated from the code when the site is built: commands, errors, settings, limits and the
calls and HTTP paths of a broker.

mkdocs calls `on_files` (see mkdocs.yml). A page that is generated can't disagree with the code it describes, so write
prose about these things only where there is something to add.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mkdocs.structure.files as site_files
from typer.main import get_command

import anabranch
from anabranch import errors, limits
from anabranch.cli import commands
from anabranch.runtime.settings import Settings
from anabranch.server.config import ServerSettings
from docs import http_page, rpc_page


def on_files(files: site_files.Files, *, config: Any) -> site_files.Files:
    """Add the generated pages to those of the folder."""
    pages = {
        "reference/api.md": api_page(),
        "reference/cli.md": command_page(),
        "reference/errors.md": error_page(),
        "reference/settings.md": settings_page(),
        "reference/limits.md": limits_page(),
        "reference/server-settings.md": server_settings_page(),
        "reference/rpc.md": rpc_page.page(),
        "reference/http.md": http_page.page(),
    }
    for path, text in pages.items():
        files.append(site_files.File.generated(config, path, content=text))
    return files


# ---- the Python API

# The names of the package by section. A dotted path is a name that is not at the top; after "as" comes how users write it.
_GROUPS = {
    "Opening a store": (
        *("connect", "anabranch.store.open.connect as anabranch.store.open.connect", "Store"),
        "anabranch.store.byte_files.ByteFiles.open as store.bytes",
        *("Settings", "restore", "rebuild", "KeyService"),
    ),
    "Writing": (
        *("Writer", "Ack", "BatchAck", "EventRange", "ByteWriter"),
        *("Producer", "ProducerAck", "ProducerResult", "ProducerInfo"),
    ),
    "Reading": ("Reader", "Event", "EventPointer", "ByteReader", "Rate", "HEAD", "TAIL"),
    "Streams and cuts": (
        *("StreamName", "StreamRange", "StreamCut", "Order", "SegmentId", "KeyRange", "StreamSegment", "Held"),
    ),
    "Policies": (
        *("Fixed", "ByEventRate", "ByByteRate", "RejectAbove", "SampleAbove"),
        *("Retention", "RetainFor", "RetainBytes", "RetainConsumed", "Subscriber"),
    ),
    "Reader groups and shared state": (
        *("ReaderGroup", "GroupReader", "Checkpoint", "Position", "SqlPositions"),
        *("StateSynchronizer", "RevisionedStream"),
    ),
    "Notifications and watermarks": (
        *("Notification", "Notifications", "Subscription", "Watermark", "WatermarkStatus", "TimeWindow"),
    ),
    "Other stores and archives": ("InStore", "Until", "read_archive", "verify_archive"),
    "What calls return": (
        *("anabranch.transactions.transaction.Transaction", "anabranch.streams.builder.StreamBuilder"),
        *("anabranch.store.history.History", "anabranch.store.history_range.HistoryRange"),
        *("anabranch.transfer.jobs.job.Job", "anabranch.transfer.jobs.progress.JobProgress"),
        *("anabranch.core.copy.CopyResult", "anabranch.core.stitch.JoinResult", "anabranch.model.replaced.Replaced"),
        *("anabranch.store.write.WriteReport", "anabranch.model.stream.StreamInfo"),
        *("anabranch.deployments.info.QueryInfo", "anabranch.log.upkeep.space.SpaceReport"),
    ),
    "Queries, Spark and metrics": (
        "anabranch.query.engine.Query as anabranch.query.Query",
        "anabranch.remote.query.query as anabranch.remote.query.query",
        "anabranch.spark.session.session.session as anabranch.spark.session",
        "anabranch.spark.source.frame.read as anabranch.spark.read",
        "anabranch.spark.pipelines.run.run as anabranch.spark.pipelines.run.run",
        "anabranch.spark.pipelines.declared_functions.calls.resource as anabranch.spark.resource",
        "anabranch.spark.transfer_jobs.carrier as anabranch.spark.transfer_jobs.carrier",
        "anabranch.export.metrics.exposition as anabranch.export.metrics.exposition",
    ),
    "Warnings": ("TimeWarning", "MisplacedEventsWarning"),
}
# The attributes of a store that have methods of their own, in the order of the page.
_PARTS = (
    *("streams", "scopes", "aliases", "cuts", "lineage", "policies", "subscribers", "ephemeral", "producers"),
    *("transactions", "groups", "shared", "notifications", "watermarks", "jobs", "archives"),
    *("queries", "templates", "modules"),
)


_API_HEAD = """What `import anabranch` offers, what its calls return, and the functions for SQL and Spark. Errors have [a page
of their own](errors.md)."""


def api_page() -> str:
    """Every public name of `anabranch`, from its docstring. A name without a group comes under "More"."""
    grouped = {name for names in _GROUPS.values() for name in names}
    more = tuple(name for name in anabranch.__all__ if name not in grouped and name != "errors")
    parts = ["# Python API", _API_HEAD]
    for title, names in {**_GROUPS, "More": more}.items():
        if names:
            parts += [f"## {title}", *(_api_entry(name) for name in names)]
    parts += ["## Parts of a store", "A store has its methods in groups: `store.cuts.at(…)` is `at` of `store.cuts`."]
    with anabranch.connect("memory://") as store:
        parts += [_part_entry(name, type(getattr(store, name))) for name in _PARTS]
    return "\n\n".join(parts) + "\n"


def _api_entry(name: str) -> str:
    if "." in name:
        path, _, shown = name.partition(" as ")
        return f"::: {path}" + (f'\n    options:\n      heading: "`{shown}`"' if shown else "")
    value = getattr(anabranch, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"::: {value.__module__}.{value.__qualname__}"
    return f"### {name}\n\n`anabranch.{name}`: `{value!r}`"


def _part_entry(name: str, part: type) -> str:
    entries = [f"### store.{name}", _class_entry(part)]
    for base, methods in _extended(part).items():
        entries.append(_class_entry(base, methods))
    return "\n\n".join(entries)


def _class_entry(part: type, methods: tuple[str, ...] = ()) -> str:
    options = ["heading_level: 4", *([f"members: [{', '.join(methods)}]"] if methods else [])]
    return f"::: {part.__module__}.{part.__qualname__}\n    options:\n" + "".join(f"      {each}\n" for each in options)


def _extended(part: type) -> dict[type, tuple[str, ...]]:
    """The methods whose documentation begins with that of a base's: "As `Streams.copy`". They are shown too."""
    found: dict[type, tuple[str, ...]] = {}
    for name, member in inspect.getmembers(part, inspect.isfunction):
        if match := re.match(rf"As `(\w+)\.{name}`", inspect.getdoc(member) or ""):
            base = next(each for each in part.__mro__ if each.__name__ == match[1])
            found[base] = (*found.get(base, ()), name)
    return found


# ---- commands


def command_page() -> str:
    """Every verb of the command line with its help, arguments and options."""
    root: Any = get_command(commands.app)
    parts = [
        "# Command line",
        "Every verb also explains itself: `anabranch VERB --help`. The options below may stand before the verb.",
        _options(root),
    ]
    for name in sorted(root.commands):
        parts += _command(root.commands[name], ["anabranch", name], level=2)
    return "\n\n".join(part for part in parts if part) + "\n"


def _command(command: Any, path: list[str], *, level: int) -> list[str]:
    verbs = getattr(command, "commands", {})
    parts = [f"{'#' * level} `{' '.join(path)}`", _help_text(command.help or "")]
    if not verbs:
        parts += [_arguments(command), _options(command)]
    for name in verbs:
        parts += _command(verbs[name], [*path, name], level=min(level + 1, 4))
    return parts


def _help_text(text: str) -> str:
    """Help as Markdown: indented examples become blocks of code."""
    found = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.splitlines()
        if all(line.startswith("  ") for line in lines):
            found.append("```console\n" + "\n".join(line.strip() for line in lines) + "\n```")
        else:
            found.append(_plain(" ".join(line.strip() for line in lines)))
    return "\n\n".join(found)


def _arguments(command: Any) -> str:
    return _table("Argument", [param for param in command.params if param.param_type_name == "argument"])


def _options(command: Any) -> str:
    return _table("Option", [param for param in command.params if param.param_type_name == "option"])


def _table(title: str, params: list[Any]) -> str:
    shown = [param for param in params if not getattr(param, "hidden", False)]
    if not shown:
        return ""
    rows = [f"| {title} | Meaning |", "|---|---|"]
    for param in shown:
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
        if param.param_type_name == "argument":
            names = f"`{(param.metavar or param.name).upper()}`"
        rows.append(f"| {names} | {_plain(getattr(param, 'help', None) or '')} |")
    return "\n".join(rows)


def _plain(text: str) -> str:
    """Text for a page: no line breaks, and nothing that Markdown or HTML would take for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


# ---- errors


def error_page() -> str:
    """The tree of errors, then each with its contract."""
    tree = inspect.cleandoc(errors.__doc__ or "")
    parts = ["# Errors", tree.split("\n\n", 1)[0], "```text\n" + tree.split("\n\n", 1)[1] + "\n```"]
    for name in sorted(errors.__all__):
        error = getattr(errors, name)
        if inspect.isclass(error):
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base is not object)
            parts.append(f"## {name}\n\nA kind of {bases}. {inspect.cleandoc(error.__doc__ or '')}")
    return "\n\n".join(parts) + "\n"


# ---- settings and limits


def settings_page() -> str:
    """Every field of `Settings` with its type and default."""
    text = inspect.cleandoc(Settings.__doc__ or "")
    rows = ["| Setting | Type | Default |", "|---|---|---|"]
    rows += [
        f"| `{field.name}` | `{str(field.type).replace(' | ', ' or ')}` | `{field.default!r}` |"
        for field in dataclasses.fields(Settings)
    ]
    return "\n\n".join(
        (
            "# Settings",
            "`anabranch.connect(place, settings=anabranch.Settings(…))` takes these.",
            text,
            "\n".join(rows),
        )
    )


def limits_page() -> str:
    """Every named limit with the comment that stands beside it in `limits.py`."""
    rows = ["| Limit | Value | What it bounds |", "|---|---:|---|"]
    rows += [f"| `{name}` | {value} | {_plain(comment)} |" for name, value, comment in _limits()]
    return "\n\n".join(("# Limits", inspect.cleandoc(limits.__doc__ or ""), "\n".join(rows))) + "\n"


def _limits() -> Iterator[tuple[str, str, str]]:
    text = Path(limits.__file__).read_text()
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, value = node.target.id, getattr(limits, node.target.id)
        if name not in ("KIB", "MIB"):
            comments = [line.partition("#")[2].strip() for line in lines[node.lineno - 1 : node.end_lineno]]
            yield name, f"{value:,}" if isinstance(value, int) else str(value), " ".join(filter(None, comments))


# ---- settings of a broker


def server_settings_page() -> str:
    """Every setting of `anabranch serve`, with its default."""
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for name, field in ServerSettings.model_fields.items():
        default = "off" if field.default in (None, ()) else str(field.default)
        rows.append(
            f"| `{name}` | `{default.lower() if default in ('True', 'False') else default}` | {_plain(field.description or '')} |"
        )
    return "\n\n".join(["# Settings of a broker", _SERVER_SETTINGS, "\n".join(rows)]) + "\n"


_SERVER_SETTINGS = """A setting has one name in three places. The first that names it wins:

1. a flag of `anabranch serve`: `--http-port 80`, or `--set http_port=80` for any setting;
2. the environment: `ANABRANCH_SERVER_HTTP_PORT=80`. For `store`, `blobs`, `history` and `keys` also the variables of all
   verbs, such as `ANABRANCH_STORE`, come after the broker's own;
3. the TOML file that `--config` or `ANABRANCH_SERVER_CONFIG` names: `http_port = 80`.

An unknown name is refused, and the error suggests the most similar one. `anabranch serve --print-config` prints what is in force, and where
each value comes from, as a file; passwords in addresses are hidden. Times are in seconds, sizes in bytes; `off` stands for
none. Lists are separated by commas in the environment and in flags."""
