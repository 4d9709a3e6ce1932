"""Every verb of the wire × every role on everything, on its scope and on another one.

The rights that a verb needs are said here once more: a new verb has to be added, and one whose rights change fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter
from typing import Any

import pytest

from anabranch.catalog.state.ephemeral import Holder
from anabranch.errors import PermissionDenied, RateLimited, Unauthenticated
from anabranch.model.ids import Micros
from anabranch.model.pointer import EventPointer
from anabranch.security.guard import Principal
from anabranch.security.quotas import Quota, Quotas
from anabranch.server import calls
from anabranch.server.broker import Broker
from anabranch.wire.values import to_json
from anabranch.wire.verbs import VERBS
from tests.server.access.credentials import KNOWN, World, may, world

# Letters as in `credentials.LETTERS`: lower-case ones on the stream or scope in the arguments, capitals on the store.
# The empty text: anybody who is known may call it, and is shown what he may read.
RIGHTS = {
    "aliases.add": "mc",
    "aliases.list": "",
    "aliases.of": "r",
    "aliases.remove": "m",
    "archives.attach": "A",
    "archives.confirm_attachment": "A",
    "archives.create": "Ar",
    "archives.create_scope": "Ar",
    "archives.digest": "r",
    "archives.import_": "A",
    "archives.unconfirmed_attachments": "A",
    "backup": "A",
    "bytes.claim": "w",
    "bytes.head": "r",
    "bytes.open": "r",
    "bytes.state": "r",
    "bytes.truncate_before": "m",
    "bytes.wait": "r",
    "check": "A",
    "collect": "A",
    "compact": "A",
    "cuts.after": "r",
    "cuts.at": "r",
    "cuts.between": "r",
    "cuts.compare": "r",
    "cuts.contains": "r",
    "cuts.distance": "r",
    "cuts.head": "r",
    "cuts.tail": "r",
    "ephemeral.create": "c",
    "ephemeral.hold": "w",
    "ephemeral.holders": "r",
    "ephemeral.is_ephemeral": "r",
    "ephemeral.keep": "m",
    "ephemeral.sweep": "A",
    "export_manifest": "A",
    "fetch": "r",
    "latest": "r",
    "forget_newer": "A",
    "group.cancel_checkpoint": "w",
    "group.checkpoint": "w",
    "group.checkpoints": "r",
    "group.cut": "r",
    "group.delete": "m",
    "group.distribution": "r",
    "group.generate_cut": "w",
    "group.open": "r",
    "group.reader_offline": "w",
    "group.readers": "r",
    "group.reset": "w",
    "group.rewind": "w",
    "group.streams": "r",
    "group.time_window": "r",
    "group.unread": "r",
    "groups.list": "",
    "history.cut": "r",
    "history.open": "r",
    "history.ranges": "r",
    "history.version": "r",
    "hold.leave": "w",
    "hold.renew": "w",
    "id": "R",
    "job.cancel": "m",
    "job.pause": "m",
    "job.progress": "r",
    "job.row": "r",
    "job.wait": "r",
    "jobs.append": "rw",
    "jobs.archive": "Ar",
    "jobs.archive_scope": "Ar",
    "jobs.confirm": "A",
    "jobs.copy": "rc",
    "jobs.copy_scope": "rc",
    "jobs.copy_where": "rc",
    "jobs.forget": "m",
    "jobs.get": "r",
    "jobs.import_archive": "A",
    "jobs.list": "",
    "jobs.replace": "mr",
    "jobs.resume": "m",
    "jobs.stitch": "rc",
    "lineage.diff": "r",
    "lineage.origins": "r",
    "notifications.forget_listener": "M",
    "policies.load": "r",
    "policies.retention": "r",
    "policies.scaling": "r",
    "producers.drop": "m",
    "producers.list": "r",
    "repair": "A",
    "rescale": "A",
    "retain": "A",
    "revisioned.append": "w",
    "revisioned.last": "r",
    "revisioned.latest": "r",
    "revisioned.oldest": "r",
    "revisioned.open": "cr",
    "revisioned.read": "r",
    "revisioned.truncate": "m",
    "rotate_keys": "A",
    "scopes.copy": "rc",
    "scopes.create": "c",
    "scopes.delete": "m",
    "modules.add": "M",
    "modules.code": "R",
    "modules.get": "R",
    "modules.list": "R",
    "modules.remove": "M",
    "modules.versions": "R",
    "queries.committed_state": "R",
    "queries.delete": "A",
    "queries.deploy": "A",
    "queries.file": "R",
    "queries.get": "R",
    "queries.list": "R",
    "queries.plan": "A",
    "queries.replay": "A",
    "queries.rollback": "A",
    "queries.start": "M",
    "queries.state": "R",
    "queries.stop": "M",
    "queries.upgrade": "A",
    "queries.validate": "A",
    "queries.versions": "R",
    "scopes.get": "r",
    "scopes.list": "",
    "scopes.rename": "mc",
    "space": "A",
    "streams.add_check": "m",
    "streams.add_columns": "m",
    "streams.append": "rw",
    "streams.copy": "rc",
    "streams.create": "c",
    "streams.delete": "m",
    "streams.evolve": "m",
    "streams.exists": "r",
    "streams.fence": "w",
    "streams.find": "r",
    "streams.get": "r",
    "streams.list": "",
    "streams.misplaced": "r",
    "streams.move": "mc",
    "streams.remove_check": "m",
    "streams.rename": "mc",
    "streams.replace": "mr",
    "streams.scale": "m",
    "streams.seal": "m",
    "streams.stitch": "rc",
    "streams.tag": "m",
    "streams.truncate": "m",
    "streams.view": "r",
    "subscribers.list": "",
    "subscribers.release": "m",
    "templates.get": "R",
    "templates.list": "R",
    "templates.remove": "A",
    "templates.save": "A",
    "transactions.commit_together": "w",
    "transactions.list": "R",
    "upkeep_failures": "A",
    "watermarks.end": "w",
    "watermarks.get": "r",
    "watermarks.idle": "r",
    "watermarks.status": "r",
    "watermarks.statuses": "",
    "watermarks.window": "r",
}
# What optional arguments change.
VARIANTS: list[tuple[str, dict[str, Any], str]] = [
    ("check", {"stream": "iot/sensors"}, "m"),
    ("compact", {"stream": "iot/sensors"}, "m"),
    ("group.open", {"streams": ["iot/sensors"]}, "wr"),
    ("group.reset", {"streams": ["lab/secret"]}, "wR"),
    ("revisioned.open", {"create": False}, "r"),
    ("jobs.stitch", {"keep_sources": False}, "rcm"),
    ("policies.load", {"policy": None}, "m"),
    ("policies.retention", {"policy": None}, "m"),
    ("policies.scaling", {"policy": {"$type": "Fixed", "segments": 1}}, "m"),
    ("repair", {"stream": "iot/sensors"}, "m"),
    ("retain", {"stream": "iot/sensors"}, "m"),
    ("streams.replace", {"with_": None}, "m"),
    ("streams.stitch", {"keep_sources": False}, "rcm"),
    ("transactions.commit_together", {"replace": True}, "wm"),
    ("subscribers.list", {"stream": "iot/sensors"}, "r"),
    ("watermarks.idle", {"idle_s": 60.0}, "m"),
]
HOLDER = Holder("token", "process", Micros(0), Micros(1))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world whose callers have used up their calls: who has the rights is told that, and nothing is done."""
    none_left = Quotas(each=Quota(calls_per_s=1e-9))
    with world(tmp_path_factory.mktemp("verbs"), none_left) as made:
        made.store.jobs.copy(made.store, "iot/sensors", "iot/copied").wait()
        yield made


def arguments(closed: World, verb: str, stream: str = "iot/sensors") -> dict[str, Any]:
    """The arguments that a verb needs, on a stream or its scope."""
    scope, job = stream.partition("/")[0], next(iter(closed.store.jobs.list())).id
    view = closed.store.streams.view(stream)
    pointer = EventPointer(view.info.id, view.current[0].id, 0)
    cut = closed.store.cuts.head(stream)
    values: dict[str, Any] = {
        **dict.fromkeys(("name", "stream", "source", "part"), stream),
        "sources": [stream],
        "streams": [stream],
        "onto": "iot/done",
        "into": "iot/all",
        "target": "iot/new",
        "columns": {},
        "schema": "n: long",
        "fence": 1,
        "check": "range",
        "condition": "value > 0",
        "time": 0,
        "tags": {},
        "where": "true",
        "between": [0, 1],
        "with_": stream,
        "scope": scope,
        "job": job,
        "place": str(closed.place),
        "url": str(closed.place),
        "pointer": str(pointer),
        "key": "a",
        "position": cut,
        "group": "iot/group",
        "revision": 0,
        "value": b"x",
        "writer": "w",
        "number": 0,
        "to": "iot",
        "segment": view.current[0].id,
        "start": 0,
        "tail": 0,
        "wait_s": 0.0,
        "idents": [],
        "request": "once",
        "code": b"",
        "file": "a",
        "text": "CREATE STREAM iot.new AS SELECT * FROM STREAM iot.sensors",
    }
    special: dict[str, dict[str, Any]] = {
        "aliases.add": {"name": "iot/more"},
        "group.checkpoint": {"name": "mark"},
        "group.reader_offline": {"name": "r"},
        "cuts.compare": {"first": cut, "second": cut},
        "cuts.contains": {"place": cut},
        "lineage.diff": {"first": stream, "second": stream},
        "ephemeral.create": {"name": "iot/new"},
        "history.cut": {"place": cut},
        "watermarks.end": {"stream": view.info.id},
        "hold.leave": {"stream": view.info.id, "holder": HOLDER},
        "hold.renew": {"stream": view.info.id, "holder": HOLDER},
        "scopes.create": {"name": "iot"},
        "scopes.rename": {"to": "iot"},
        "streams.create": {"name": "iot/new"},
        "streams.rename": {"name": "iot/new"},
        "streams.move": {"scope": "iot"},
        "aliases.of": {"stream": stream},
    }
    if verb == "bytes.truncate_before":
        values["position"] = 0
    if verb.startswith(("revisioned.", "history.", "bytes.")) and not verb.endswith((".open", ".claim")):
        values["stream"] = view.info.id
    if verb.startswith("scopes.") and verb != "scopes.create":
        special.setdefault(verb, {})
        values |= {"name": scope, "source": scope, "scope": scope, "target": "iot"}
    if verb == "jobs.copy_scope":
        values["target"] = "iot"
    if verb.startswith("jobs.") and verb not in ("jobs.archive", "jobs.archive_scope"):
        values["source"] = {"$type": "ThisStore"}
    values |= special.get(verb, {})
    needed = [name for name, each in VERBS[verb].parameters.items() if each.default is Parameter.empty]
    return {name: as_json(values[name]) for name in (*needed, *(special.get(verb, {})))}


def as_json(value: Any) -> Any:
    return value if isinstance(value, dict) and "$type" in value else to_json(value)


def principal(closed: World, caller: str) -> Principal:
    found = closed.guard.authenticate(token=closed.tokens[caller], certificate=None, peer="test")
    while True:  # use up its calls
        try:
            closed.guard.admit(found)
        except RateLimited:
            return found


def allowed(closed: World, caller: Principal, verb: str, given: dict[str, Any]) -> bool:
    try:
        calls.run(Broker(closed.store, closed.guard), caller, verb, given)
    except PermissionDenied:
        return False
    except RateLimited:
        return True
    raise AssertionError(f"{verb} was carried out")


def test_every_verb_s_rights_are_said() -> None:
    assert RIGHTS.keys() == VERBS.keys()


@pytest.mark.parametrize("caller", KNOWN)
def test_a_caller_may_call_what_his_role_allows_where_he_has_it(closed: World, caller: str) -> None:
    who = principal(closed, caller)
    cases: list[tuple[str, dict[str, Any], str]] = [(verb, {}, needs) for verb, needs in RIGHTS.items()] + VARIANTS
    found = {(verb, *more): allowed(closed, who, verb, {**arguments(closed, verb), **more}) for verb, more, _ in cases}
    assert found == {(verb, *more): may(caller, needs) for verb, more, needs in cases}


def test_an_alias_in_an_open_scope_opens_no_stream_of_another(closed: World) -> None:
    who = principal(closed, "admin on iot/")
    for verb, needs in RIGHTS.items():
        given = arguments(closed, verb, "iot/window")
        if needs and given != arguments(closed, verb) and not verb.startswith("scopes."):
            assert not allowed(closed, who, verb, given), verb


def test_internal_names_are_for_admins(closed: World) -> None:
    for caller in KNOWN:
        who = principal(closed, caller)
        for verb, given in (
            ("streams.get", {"name": "_store/audit"}),
            ("streams.copy", {"source": "iot/sensors", "target": "iot/_marks"}),
            ("scopes.copy", {"source": "_store", "target": "iot"}),
        ):
            needs = "A" if verb != "streams.copy" else "a"
            assert allowed(closed, who, verb, given) is may(caller, needs), (caller, verb)
        for verb in ("streams.delete", "streams.seal", "streams.truncate", "streams.scale"):
            assert not allowed(closed, who, verb, {"name": "_store/audit"})


def test_places_outside_of_those_allowed_are_refused_to_admins_too(closed: World) -> None:
    who = principal(closed, "admin on *")
    for verb, needs in RIGHTS.items():
        given = arguments(closed, verb)
        for name in {"url", "place" if verb == "backup" else "url"} & given.keys():
            if verb != "archives.confirm_attachment":
                assert needs.startswith("A") and allowed(closed, who, verb, given)
                assert not allowed(closed, who, verb, {**given, name: str(closed.place.parent / "other")}), verb


def test_who_is_no_longer_known_is_refused_in_a_call_that_has_begun(closed: World) -> None:
    gone = Principal("root", token="0a1b2c3d4e5f")
    for verb in (each for each, needs in RIGHTS.items() if needs):
        with pytest.raises(Unauthenticated, match="revoked"):
            calls.run(Broker(closed.store, closed.guard), gone, verb, arguments(closed, verb))
