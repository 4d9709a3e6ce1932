"""Replays: the results of a query are recomputed beside the present ones, and then replace them.

A replay is a query of its own, `<query>-replay-<version>`, that hosts run like any other. It writes to streams with names
of their own, so the query goes on undisturbed. Once it has caught up, a host swaps the two in one transaction: the streams
of the present results get the names `<stream>_v<version>`, those of the replay take theirs, and the query continues from
the checkpoints of the replay. What is left under the replay's name, the earlier pipeline with its checkpoints, is deleted.
The earlier results still belong to the query: a deletion with its results deletes them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.codec import stream_id, stream_id_text
from anabranch.catalog.state.load import LOAD_POLICY
from anabranch.catalog.state.pipeline import PIPELINE, PipelineOutput, StoredPipeline
from anabranch.catalog.state.query import QUERY, QueryRow, QueryState
from anabranch.catalog.state.query_version import QueryVersion
from anabranch.deployments.record import all_queries, need_query, need_version, put_query, put_version
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.streams.directory.find import need_free
from anabranch.streams.names.rename import set_name
from anabranch.streams.retention.stored import policy_of, put_policy
from anabranch.streams.scaling.stored import put_rate_policy, rate_policy_of

__all__ = ["add_replay", "refuse_replayed", "replay_name", "replay_stream", "replays_of", "swap"]


def replay_name(query: str, version: int) -> str:
    """The name of the query that recomputes the results of this version."""
    return f"{query}-replay-{version}"


def replay_stream(name: StreamName, version: int) -> StreamName:
    """The stream in which a replay builds what is to be called `name`."""
    return StreamName(name.scope, f"{name.name}_replay_{version}")


def replays_of(txn: Reading, query: str) -> list[QueryRow]:
    """The replays of a query that have not taken its place yet."""
    return [row for row in all_queries(txn) if row.replaces == query and row.wanted != "deleted"]


def refuse_replayed(txn: Reading, row: QueryRow) -> None:
    """Raise Conflict if the query is a replay, or has one: its version is then changed by the swap alone."""
    if row.replaces is not None:
        raise Conflict(f"query '{row.name}' is a replay that will replace '{row.replaces}': change that query instead")
    for each in replays_of(txn, row.name):
        raise Conflict(
            f"query '{row.name}' is being replayed by '{each.name}', which will replace it; to cancel the replay: "
            f"anabranch queries delete {each.name}"
        )


def swap(txn: Writing, name: str, epoch: int, outputs: Sequence[PipelineOutput], now: Micros) -> Mapping[str, str]:
    """Let the replay `name`, held in `epoch`, take the place of its query. `outputs` are the statements of its version as
    the query itself would run them, in the order of the replay's. Returns the new names of the earlier results by their
    present ones, of those that are kept. Raises Conflict if the host has lost it, InvalidArgument if a name that it needs is
    that of another stream."""
    row = need_query(txn, name)
    if row.epoch != epoch or row.lease is None or row.replaces is None or row.wanted == "deleted":
        raise Conflict(f"query '{name}' is no longer held by this host")
    query = need_query(txn, row.replaces)
    fresh, stale = txn.state(PIPELINE, name), txn.state(PIPELINE, query.name)
    if fresh is None or not fresh.prepared:
        raise Conflict(f"query '{name}' has not started yet")
    taken = {StreamName.parse(wanted): ident for ident, wanted in _stream_names(fresh, outputs)}
    kept = _move_away(txn, query, stale, taken, now)
    for wanted, ident in taken.items():
        _take_name(txn, ident, wanted, kept.get(str(wanted)), now)
    _put_pipelines(txn, row, query, fresh, stale, outputs, kept, now)
    version = need_version(txn, name, row.version)
    put_version(txn, replace(version, query=query.name))
    state: QueryState = "waiting" if query.wanted == "running" else "stopped"
    if query.state in ("starting", "running", "stopping"):
        state = query.state
    changed = replace(query, version=version.number, changed_at=now, change=query.change + 1, restart=None)
    put_query(txn, replace(changed, state=state, restarts=0, retry_at=None, error=None))
    put_query(txn, replace(row, wanted="deleted", changed_at=now, change=row.change + 1, drop_results=not row.keeps))
    left = {name for output in outputs for name in (output.target, *output.sides)} if row.keeps else set()
    return {before: str(after.name) for before, after in kept.items() if before in left}


def _stream_names(pipeline: StoredPipeline, outputs: Sequence[PipelineOutput]) -> Iterator[tuple[StreamId, str]]:
    """The streams of a replay, each with the name that it takes."""
    for built, wanted in zip(pipeline.outputs, outputs, strict=True):
        for known, name in zip((built.target_id, *built.side_ids), (wanted.target, *wanted.sides), strict=True):
            assert known is not None, "it was prepared"
            yield stream_id(known), name
        if built.late_id is not None and wanted.late is not None:
            yield stream_id(built.late_id), wanted.late


def _move_away(
    txn: Writing, query: QueryRow, pipeline: StoredPipeline | None, names: Iterable[StreamName], now: Micros
) -> dict[str, StreamInfo]:
    """Rename the streams of the present results whose names the replay takes. Returns them, renamed, by those names.
    Raises InvalidArgument for one that the query does not write."""
    outputs = () if pipeline is None else pipeline.outputs
    own = frozenset[str]().union(*(output.ids for output in outputs))
    found: dict[str, StreamInfo] = {}
    for name in names:
        info = txn.stream(name)
        if info is None:
            continue
        if stream_id_text(info.id) not in own or info.name != name:
            raise InvalidArgument(
                f"'{name}' is not a stream that query '{query.name}' writes, so its replay can't take the name"
            )
        found[str(name)] = set_name(txn, info, _free_name(txn, name, query.version), now)
    return found


def _free_name(txn: Writing, name: StreamName, version: int) -> StreamName:
    """A free name for the results of an earlier version. An earlier replay to the same version may have taken the first
    one."""
    number = 1
    while True:
        suffix = "" if number == 1 else f"_{number}"
        found = StreamName(name.scope, f"{name.name}_v{version}{suffix}")
        if txn.stream(found) is None:
            return found
        number += 1


def _take_name(txn: Writing, ident: StreamId, name: StreamName, before: StreamInfo | None, now: Micros) -> None:
    """Give a stream of the replay its name, with the aliases and policies of the one that had it, `before`."""
    info = txn.stream(ident)
    if info is None:
        raise InvalidArgument(f"a stream that was to be called '{name}' has been deleted")
    need_free(txn, name)
    set_name(txn, info, name, now)
    if before is None:
        return
    for alias in txn.aliases_of(before.id):
        txn.drop_alias(alias)
        txn.put_alias(alias, ident)
        txn.add_change(before.id, "alias removed", {"alias": str(alias)}, now=now)
        txn.add_change(ident, "alias added", {"alias": str(alias)}, now=now)
    if (retention := policy_of(txn, before.id)) is not None:
        put_policy(txn, ident, retention, now)
    if (rate := rate_policy_of(txn, before.id)) is not None:
        put_rate_policy(txn, ident, rate, now)
    if (load := txn.state(LOAD_POLICY, before.id)) is not None:
        txn.put_state(LOAD_POLICY, ident, load)


def _put_pipelines(
    txn: Writing,
    row: QueryRow,
    query: QueryRow,
    fresh: StoredPipeline,
    stale: StoredPipeline | None,
    outputs: Sequence[PipelineOutput],
    kept: Mapping[str, StreamInfo],
    now: Micros,
) -> None:
    """The query continues from the checkpoints of the replay, and the earlier ones go with the replay. Neither has a
    holder any more, so what still runs of both publishes nothing. The streams that the query has made stay its own, but
    for those that go with the replay: the present results, unless it keeps them."""
    taken = tuple(map(_renamed, fresh.outputs, outputs))
    born = fresh.created_at if stale is None else stale.created_at
    known = () if stale is None else stale.made
    fed = frozenset[str]() if stale is None else frozenset[str]().union(*(output.ids for output in stale.outputs))
    own = (each for each in known if (row.keeps or each not in fed) and txn.stream(stream_id(each)) is not None)
    made = tuple(dict.fromkeys((*own, *fresh.made)))
    successor = replace(_without_holder(fresh, now), name=query.name, outputs=taken, created_at=born, made=made)
    txn.put_state(PIPELINE, query.name, successor)
    if stale is None:
        txn.drop_state(PIPELINE, fresh.name)
        return
    new_names = {before: str(info.name) for before, info in kept.items()}
    left = tuple(_moved(output, new_names) for output in stale.outputs)
    ended = replace(_without_holder(stale, now), name=fresh.name, outputs=left, progress=())
    txn.put_state(PIPELINE, fresh.name, replace(ended, made=tuple(each for each in known if each in fed)))


def _without_holder(pipeline: StoredPipeline, now: Micros) -> StoredPipeline:
    return replace(pipeline, holder=None, state="stopped", stop_requested=False, ended_at=now, error=None)


def _renamed(built: PipelineOutput, wanted: PipelineOutput) -> PipelineOutput:
    """An output of the replay, as one of the query."""
    names = dict(zip(built.sources, wanted.sources, strict=True))
    starts = {names[source]: cut for source, cut in built.starts.items()}
    late = wanted.late if built.late is not None else None
    return replace(
        built,
        target=wanted.target,
        late=late,
        sources=wanted.sources,
        sides=wanted.sides,
        starts=starts,
        fingerprint=wanted.fingerprint,
    )


def _moved(output: PipelineOutput, names: Mapping[str, str]) -> PipelineOutput:
    def name(before: str) -> str:
        return names.get(before, before)

    late = None if output.late is None else name(output.late)
    return replace(output, target=name(output.target), late=late, sides=tuple(map(name, output.sides)))


def add_replay(txn: Writing, query: QueryRow, version: QueryVersion, row: QueryRow) -> None:
    """Store a replay. Raises Conflict if the query is one or has one, InvalidArgument where its name is taken."""
    refuse_replayed(txn, query)
    present = txn.state(QUERY, row.name)
    if present is not None and present.replaces == query.name:
        raise Conflict(
            f"an earlier replay, '{row.name}', is still being deleted; a host does that (anabranch queries serve)"
        )
    if txn.state(QUERY, row.name) is not None or txn.state(PIPELINE, row.name) is not None:
        raise InvalidArgument(f"the name '{row.name}' that the replay needs is taken")
    put_version(txn, version)
    put_query(txn, row)
