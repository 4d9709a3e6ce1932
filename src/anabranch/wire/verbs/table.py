"""The table of verbs. A new method of the store gets its row here; a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.errors import InvalidArgument
from anabranch.store.facade import Store
from anabranch.wire.verbs.handles import job_handle
from anabranch.wire.verbs.holds import HOLD_VERBS
from anabranch.wire.verbs.jobs import JOB_VERBS
from anabranch.wire.verbs.needs import (
    Need,
    each,
    if_given,
    job,
    moved,
    new,
    of_each,
    places,
    pointed,
    scope,
    store,
    stream,
    upkeep,
)
from anabranch.wire.verbs.verb import Verb


def _read(name: str, *arguments: str) -> Verb:
    """A verb that reads about the streams in these arguments."""
    return Verb(name, stream("read", *arguments), changes=False)


def store_id(store: Store) -> str:
    """The store's id; see `Store.id`."""
    return store.id


def _shown_stream(name: Any) -> Need:
    return Need("read", "stream", name)


_STREAMS: Final = (
    Verb("streams.add_columns", stream("manage", "name")),
    Verb("streams.append", each(stream("read", "source"), stream("write", "onto"))),
    Verb("streams.copy", each(stream("read", "source"), new("target"))),
    Verb("streams.create", new("name")),
    Verb("streams.delete", stream("manage", "name")),
    Verb("streams.evolve", stream("manage", "name")),
    _read("streams.exists", "name"),
    Verb("streams.fence", stream("write", "name")),
    _read("streams.find", "name"),
    _read("streams.get", "name"),
    Verb(
        "streams.list",
        lambda arguments: [],
        streaming=True,
        shown=lambda item: Need("read", "new", item.name),
        changes=False,
    ),
    _read("streams.misplaced", "stream"),
    Verb("streams.move", each(stream("manage", "stream"), moved("stream", "scope"))),
    Verb("streams.rename", each(stream("manage", "stream"), new("name"))),
    Verb(
        "streams.replace",
        each(stream("manage", "stream"), lambda a: stream("read", "with_")(a) if a.get("with_") else []),
    ),
    Verb("streams.scale", stream("manage", "name")),
    Verb("streams.seal", stream("manage", "name")),
    Verb(
        "streams.stitch",
        each(
            of_each("read", "sources"),
            new("into"),
            lambda a: of_each("manage", "sources")(a) if a.get("keep_sources") is False else [],
        ),
    ),
    Verb("streams.tag", stream("manage", "name")),
    Verb("streams.truncate", stream("manage", "name")),
    _read("streams.view", "name"),
)
_NAMES: Final = (
    Verb("scopes.copy", each(scope("read", "source"), scope("create", "target"))),
    Verb("scopes.create", scope("create", "name")),
    Verb("scopes.delete", scope("manage", "name")),
    Verb("scopes.get", scope("read", "name"), changes=False),
    Verb("scopes.list", lambda arguments: [], shown=lambda item: Need("read", "scope", item.name), changes=False),
    Verb("scopes.rename", each(scope("manage", "scope"), scope("create", "to"))),
    Verb("aliases.add", each(stream("manage", "stream"), new("name"))),
    Verb(
        "aliases.list",
        lambda arguments: [],
        streaming=True,
        shown=lambda item: _shown_stream(item[1]),
        changes=False,
    ),
    Verb(
        "aliases.of",
        if_given("stream", stream("read", "stream"), lambda a: []),
        shown=lambda item: _shown_stream(item[1]),
        changes=False,
    ),
    Verb("aliases.remove", stream("manage", "name")),
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
    Verb("policies.retention", if_given("policy", stream("manage", "name"), stream("read", "name"))),
    Verb("policies.scaling", if_given("policy", stream("manage", "name"), stream("read", "name"))),
    _read("producers.list", "stream"),
    Verb("producers.drop", stream("manage", "stream")),
    Verb(
        "subscribers.list",
        if_given("stream", stream("read", "stream"), lambda a: []),
        shown=lambda item: _shown_stream(item.stream),
        changes=False,
    ),
    Verb("subscribers.release", stream("manage", "stream")),
    _read("watermarks.get", "stream"),
    Verb("watermarks.idle", if_given("idle_s", stream("manage", "stream"), stream("read", "stream"))),
    _read("watermarks.status", "stream"),
    Verb("watermarks.statuses", lambda a: [], shown=lambda item: _shown_stream(item.stream), changes=False),
    _read("watermarks.window", "stream"),
    Verb("groups.list", lambda a: [], shown=lambda item: Need("read", "new", item), changes=False),
    Verb("transactions.list", store("read"), changes=False),
    Verb("notifications.forget_listener", store("manage")),
)
_EPHEMERAL: Final = (
    _read("ephemeral.holders", "name"),
    _read("ephemeral.is_ephemeral", "name"),
    Verb("ephemeral.keep", stream("manage", "name")),
    Verb("ephemeral.sweep", store("admin")),
    *HOLD_VERBS,
)
_JOBS: Final = (
    Verb("jobs.append", each(stream("read", "stream"), stream("write", "onto")), sent=job_handle),
    Verb("jobs.copy", each(stream("read", "stream"), new("target")), sent=job_handle),
    Verb("jobs.copy_scope", each(scope("read", "scope"), scope("create", "target")), sent=job_handle),
    Verb("jobs.copy_where", each(stream("read", "stream"), new("target")), sent=job_handle),
    Verb(
        "jobs.stitch",
        each(
            of_each("read", "streams"),
            new("into"),
            lambda a: of_each("manage", "streams")(a) if a.get("keep_sources") is False else [],
        ),
        sent=job_handle,
    ),
    Verb(
        "jobs.replace",
        each(stream("manage", "stream"), lambda a: stream("read", "with_")(a) if a.get("with_") else []),
        sent=job_handle,
    ),
    Verb("jobs.archive", each(store("admin"), stream("read", "source"), places("url", "sign")), sent=job_handle),
    Verb("jobs.archive_scope", each(store("admin"), scope("read", "scope"), places("url", "sign")), sent=job_handle),
    Verb("jobs.import_archive", each(store("admin"), places("url", "trusted")), sent=job_handle),
    Verb("jobs.confirm", store("admin")),
    Verb("jobs.forget", job("manage")),
    Verb("jobs.get", job("read"), sent=job_handle, changes=False),
    Verb("jobs.list", lambda a: [], shown=lambda item: Need("read", "job", item.id), changes=False),
    Verb("jobs.resume", job("manage"), sent=job_handle),
    *JOB_VERBS,
)
_ARCHIVES: Final = (
    Verb("archives.attach", each(store("admin"), places("url", "trusted"))),
    Verb("archives.confirm_attachment", store("admin")),
    Verb("archives.create", each(store("admin"), stream("read", "source"), places("url", "sign"))),
    Verb("archives.create_scope", each(store("admin"), scope("read", "scope"), places("url", "sign"))),
    Verb("archives.digest", stream("read", "source"), changes=False),
    Verb("archives.import_", each(store("admin"), places("url", "trusted"))),
    Verb("archives.unconfirmed_attachments", store("admin"), changes=False),
)
_STORE: Final = (
    Verb("backup", each(store("admin"), places("place"))),
    Verb("check", upkeep(), streaming=True, changes=False),
    Verb("collect", store("admin")),
    Verb("compact", upkeep()),
    Verb("export_manifest", store("admin")),
    Verb("fetch", pointed("read", "pointer"), changes=False),
    Verb("forget_newer", store("admin")),
    Verb("id", store("read"), changes=False, run=store_id),
    Verb("repair", upkeep(), streaming=True),
    Verb("rescale", store("admin")),
    Verb("retain", upkeep()),
    Verb("rotate_keys", store("admin")),
    Verb("space", store("admin"), changes=False),
    Verb("upkeep_failures", store("admin"), changes=False),
)

VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb for verbs in (_STREAMS, _NAMES, _POLICIES, _EPHEMERAL, _JOBS, _ARCHIVES, _STORE) for verb in verbs
}
"""All verbs, by name."""


def find_verb(name: str) -> Verb:
    """The verb of this name. Raises InvalidArgument."""
    verb = VERBS.get(name)
    if verb is None:
        raise InvalidArgument(f"'{name:.100}' is not a verb of a broker")
    return verb
