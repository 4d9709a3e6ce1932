"""The table of verbs. A new method of the store gets its row here; a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.store.facade import Store
from anabranch.wire.verbs.byte_streams import BYTE_VERBS
from anabranch.wire.verbs.groups import GROUP_VERBS
from anabranch.wire.verbs.history import HISTORY_VERBS
from anabranch.wire.verbs.holds import HOLD_VERBS
from anabranch.wire.verbs.jobs import JOB_VERBS, job_handle
from anabranch.wire.verbs.needs import (
    Need,
    Needs,
    code,
    each,
    if_,
    if_given,
    job,
    moved,
    new,
    nothing,
    of_each,
    places,
    pointed,
    scope,
    store,
    stream,
    upkeep,
)
from anabranch.wire.verbs.shared import SHARED_VERBS
from anabranch.wire.verbs.verb import StoreVerb


def _read(name: str, *arguments: str) -> StoreVerb:
    """A verb that reads about the streams in these arguments."""
    return StoreVerb(name, stream("read", *arguments), changes=False)


def store_id(store: Store) -> str:
    """The store's id; see `Store.id`."""
    return store.id


def end_times(store: Store, stream: StreamId, writer: str) -> None:
    """No watermark of the stream waits for this writer any more: it was closed."""
    store.watermarks.note(stream, writer, None)


def _shown_alias(item: Any) -> Need:
    return Need("read", "stream", item[1])


def _shown_of_stream(item: Any) -> Need:
    return Need("read", "stream", item.stream)


def _to_stitch(sources: str) -> Needs:
    changing = if_(lambda arguments: arguments.get("keep_sources") is False, of_each("manage", sources))
    return each(of_each("read", sources), new("into"), changing)


_TO_REPLACE: Final = each(stream("manage", "stream"), if_(lambda a: a.get("with_"), stream("read", "with_")))
_ON_POLICY: Final = if_given("policy", stream("manage", "name"), stream("read", "name"))
_OF_STREAM: Final = if_given("stream", stream("read", "stream"), nothing)


_STREAMS: Final = (
    StoreVerb("streams.add_check", each(stream("manage", "name"), if_given("violations", new("violations"), nothing))),
    StoreVerb("streams.add_columns", stream("manage", "name")),
    StoreVerb("streams.append", each(stream("read", "source"), stream("write", "onto"))),
    StoreVerb("streams.copy", each(stream("read", "source"), new("target"))),
    StoreVerb("streams.create", new("name")),
    StoreVerb("streams.delete", stream("manage", "name")),
    StoreVerb("streams.evolve", stream("manage", "name")),
    _read("streams.exists", "name"),
    StoreVerb("streams.fence", stream("write", "name")),
    _read("streams.find", "name"),
    _read("streams.get", "name"),
    StoreVerb(
        *("streams.list", nothing), streaming=True, shown=lambda item: Need("read", "new", item.name), changes=False
    ),
    _read("streams.misplaced", "stream"),
    StoreVerb("streams.move", each(stream("manage", "stream"), moved("stream", "scope"))),
    StoreVerb("streams.remove_check", stream("manage", "name")),
    StoreVerb("streams.rename", each(stream("manage", "stream"), new("name"))),
    StoreVerb("streams.replace", _TO_REPLACE),
    StoreVerb("streams.scale", stream("manage", "name")),
    StoreVerb("streams.seal", stream("manage", "name")),
    StoreVerb("streams.stitch", _to_stitch("sources")),
    StoreVerb("streams.tag", stream("manage", "name")),
    StoreVerb("streams.truncate", stream("manage", "name")),
    _read("streams.view", "name"),
)
_NAMES: Final = (
    StoreVerb("scopes.copy", each(scope("read", "source"), scope("create", "target"))),
    StoreVerb("scopes.create", scope("create", "name")),
    StoreVerb("scopes.delete", scope("manage", "name")),
    StoreVerb("scopes.get", scope("read", "name"), changes=False),
    StoreVerb("scopes.list", nothing, shown=lambda item: Need("read", "scope", item.name), changes=False),
    StoreVerb("scopes.rename", each(scope("manage", "scope"), scope("create", "to"))),
    StoreVerb("aliases.add", each(stream("manage", "stream"), new("name"))),
    StoreVerb("aliases.list", nothing, streaming=True, shown=_shown_alias, changes=False),
    StoreVerb("aliases.of", _OF_STREAM, shown=_shown_alias, changes=False),
    StoreVerb("aliases.remove", stream("manage", "name")),
    _read("cuts.after", "name"),
    _read("cuts.at", "name"),
    _read("cuts.between", "name"),
    _read("cuts.compare", "name"),
    _read("cuts.contains", "part"),
    _read("cuts.distance", "name"),
    _read("cuts.head", "name"),
    _read("cuts.tail", "name"),
    _read("lineage.diff", "first", "second"),
    _read("lineage.origins", "name"),
)
_POLICIES: Final = (
    StoreVerb("policies.load", _ON_POLICY),
    StoreVerb("policies.retention", _ON_POLICY),
    StoreVerb("policies.scaling", _ON_POLICY),
    _read("producers.list", "stream"),
    StoreVerb("producers.drop", stream("manage", "stream")),
    StoreVerb("subscribers.list", _OF_STREAM, shown=_shown_of_stream, changes=False),
    StoreVerb("subscribers.release", stream("manage", "stream")),
    StoreVerb("watermarks.end", stream("write", "stream"), run=end_times),
    _read("watermarks.get", "stream"),
    StoreVerb("watermarks.idle", if_given("idle_s", stream("manage", "stream"), stream("read", "stream"))),
    _read("watermarks.status", "stream"),
    StoreVerb("watermarks.statuses", nothing, shown=_shown_of_stream, changes=False),
    _read("watermarks.window", "stream"),
    StoreVerb("groups.list", nothing, shown=lambda item: Need("read", "new", item), changes=False),
    StoreVerb(
        "transactions.commit_together",
        each(stream("write", "stream"), if_(lambda a: a.get("replace"), stream("manage", "stream"))),
    ),
    StoreVerb("transactions.list", store("read"), changes=False),
    StoreVerb("notifications.forget_listener", store("manage")),
)
_EPHEMERAL: Final = (
    _read("ephemeral.holders", "name"),
    _read("ephemeral.is_ephemeral", "name"),
    StoreVerb("ephemeral.keep", stream("manage", "name")),
    StoreVerb("ephemeral.sweep", store("admin")),
    *HOLD_VERBS,
)
_SESSIONS: Final = (*GROUP_VERBS, *SHARED_VERBS, *HISTORY_VERBS, *BYTE_VERBS)
_JOBS: Final = (
    StoreVerb("jobs.append", each(stream("read", "stream"), stream("write", "onto")), sent=job_handle),
    StoreVerb("jobs.copy", each(stream("read", "stream"), new("target")), sent=job_handle),
    StoreVerb("jobs.copy_scope", each(scope("read", "scope"), scope("create", "target")), sent=job_handle),
    StoreVerb("jobs.copy_where", each(stream("read", "stream"), new("target")), sent=job_handle),
    StoreVerb("jobs.stitch", _to_stitch("streams"), sent=job_handle),
    StoreVerb("jobs.replace", _TO_REPLACE, sent=job_handle),
    StoreVerb("jobs.archive", each(store("admin"), stream("read", "source"), places("url", "sign")), sent=job_handle),
    StoreVerb(
        "jobs.archive_scope", each(store("admin"), scope("read", "scope"), places("url", "sign")), sent=job_handle
    ),
    StoreVerb("jobs.import_archive", each(store("admin"), places("url", "trusted")), sent=job_handle),
    StoreVerb("jobs.confirm", store("admin")),
    StoreVerb("jobs.forget", job("manage")),
    StoreVerb("jobs.get", job("read"), sent=job_handle, changes=False),
    StoreVerb("jobs.list", nothing, shown=lambda item: Need("read", "job", item.id), changes=False),
    StoreVerb("jobs.resume", job("manage"), sent=job_handle),
    *JOB_VERBS,
)
# A query runs as its host, which may read and write every stream, and files: so a caller who deploys one can do all that too. With
# Python code it can do anything there, which needs a right of its own.
_QUERIES: Final = (
    StoreVerb("queries.committed_state", store("read"), changes=False),
    StoreVerb("queries.delete", store("admin")),
    StoreVerb("queries.deploy", each(store("admin"), code("files"))),
    StoreVerb("queries.file", store("read"), changes=False),
    StoreVerb("queries.get", store("read"), changes=False),
    StoreVerb("queries.list", store("read"), changes=False),
    StoreVerb("queries.plan", store("admin"), changes=False),
    StoreVerb("queries.replay", each(store("admin"), code("files", "name"))),
    StoreVerb("queries.rollback", store("admin")),
    StoreVerb("queries.state", store("read"), changes=False),
    StoreVerb("queries.start", store("manage")),
    StoreVerb("queries.stop", store("manage")),
    StoreVerb("queries.upgrade", each(store("admin"), code("files", "name"))),
    StoreVerb("queries.validate", store("admin"), changes=False),
    StoreVerb("queries.versions", store("read"), changes=False),
)
# Deploying a template runs its statements.
_TEMPLATES: Final = (
    StoreVerb("templates.get", store("read"), changes=False),
    StoreVerb("templates.list", store("read"), changes=False),
    StoreVerb("templates.remove", store("admin")),
    StoreVerb("templates.save", store("admin")),
)
# A module computes on what its caller may read, within limits. What it returns is everybody's who queries.
_MODULES: Final = (
    StoreVerb("modules.add", store("manage")),
    StoreVerb("modules.code", store("read"), changes=False),
    StoreVerb("modules.get", store("read"), changes=False),
    StoreVerb("modules.list", store("read"), changes=False),
    StoreVerb("modules.remove", store("manage")),
    StoreVerb("modules.versions", store("read"), changes=False),
)
_ARCHIVES: Final = (
    StoreVerb("archives.attach", each(store("admin"), places("url", "trusted"))),
    StoreVerb("archives.confirm_attachment", store("admin")),
    StoreVerb("archives.create", each(store("admin"), stream("read", "source"), places("url", "sign"))),
    StoreVerb("archives.create_scope", each(store("admin"), scope("read", "scope"), places("url", "sign"))),
    StoreVerb("archives.digest", stream("read", "source"), changes=False),
    StoreVerb("archives.import_", each(store("admin"), places("url", "trusted"))),
    StoreVerb("archives.unconfirmed_attachments", store("admin"), changes=False),
)
_STORE: Final = (
    StoreVerb("backup", each(store("admin"), places("place"))),
    StoreVerb("check", upkeep(), streaming=True, changes=False),
    StoreVerb("collect", store("admin")),
    StoreVerb("compact", upkeep()),
    StoreVerb("export_manifest", store("admin")),
    StoreVerb("fetch", pointed("read", "pointer"), changes=False),
    StoreVerb("forget_newer", store("admin")),
    StoreVerb("id", store("read"), changes=False, run=store_id),
    _read("latest", "stream"),
    StoreVerb("repair", upkeep(), streaming=True),
    StoreVerb("rescale", store("admin")),
    StoreVerb("retain", upkeep()),
    StoreVerb("rotate_keys", store("admin")),
    StoreVerb("space", store("admin"), changes=False),
    StoreVerb("upkeep_failures", store("admin"), changes=False),
)

VERBS: Final[Mapping[str, StoreVerb]] = {
    verb.name: verb
    for verbs in (
        _STREAMS,
        _NAMES,
        _POLICIES,
        _EPHEMERAL,
        _SESSIONS,
        _JOBS,
        _QUERIES,
        _TEMPLATES,
        _MODULES,
        _ARCHIVES,
        _STORE,
    )
    for verb in verbs
}
"""All verbs, by name."""


def _query(
    store: Store, sql: str, dialect: str | None = None, parameters: list[Any] | None = None
) -> list[dict[str, Any]]:
    """The rows of a query in DuckDB's SQL, or in a `dialect`'s, over the streams that the caller may read. `parameters` are
    the values of `?` or `$1`, `$2` …: texts, numbers, true, false or null. The broker does it."""
    raise NotImplementedError


QUERY: Final = StoreVerb("query", nothing, changes=False, run=_query)
"""The verb by which a run asks for SQL. It is no method of a store: a broker runs it in a process of its own."""


def find_verb(name: str) -> StoreVerb:
    """The verb of this name. Raises InvalidArgument."""
    verb = VERBS.get(name)
    if verb is None:
        raise InvalidArgument(f"'{name:.100}' is not a verb of a broker")
    return verb
