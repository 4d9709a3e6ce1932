"""Makes a plan from SQL: in which order statements start, each one's watermark delays, and where each begins.

Uses the store's streams, but not Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Final

from sqlglot.dialects.spark import Spark

from anabranch.catalog.state.query_version import QueryFile
from anabranch.deployments.replay import replay_stream
from anabranch.errors import AnabranchError, InvalidArgument, InvalidCut, InvalidSql
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.spark.pipelines.declared_functions.declared import DeclaredFunction
from anabranch.spark.pipelines.record import PipelineOutput, Restart
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.statement import Statement
from anabranch.store import Store
from anabranch.store.engine_api import Place, parse_place

__all__ = ["WATERMARK_US", "Step", "functions_of", "plan", "query_words", "replay_steps", "resolve_starts"]


WATERMARK_US: Final = 10_000_000  # the watermark's delay for a statement without the option


@dataclass(frozen=True, slots=True)
class Step:
    """A statement, with settings that depend on the other statements of its file.

    `internal` holds those of its sources that other statements of the file write. `level` is 0 for a statement without
    such sources, else one more than the highest level of those that write them. `delays_us` is the watermark's delay
    for each source.
    """

    statement: Statement
    internal: frozenset[StreamName]
    level: int
    delays_us: Mapping[StreamName, int]

    @property
    def target(self) -> str:
        """The result stream's name as text."""
        return str(self.statement.target)

    @property
    def output(self) -> PipelineOutput:
        """The statement as stored in the catalog row."""
        statement = self.statement
        late = str(statement.late_target) if statement.options.late else None
        sources = tuple(str(name) for name in statement.sources.values())
        sides = tuple(str(side.target) for side in statement.sides)
        return PipelineOutput(
            self.target,
            late,
            sources,
            statement.line,
            _fingerprint(statement),
            sides=sides,
            feedback=tuple(str(each.target) for each in statement.feedback),
        )


def plan(text: str, parameters: Mapping[str, str] | None = None, files: Sequence[QueryFile] = ()) -> tuple[Step, ...]:
    """The steps of a file with these values of its parameters and these files with the code of its functions, each after
    those whose results it reads. Raises InvalidSql."""
    statements = parse(text, parameters, files)
    writers = {target: statement for statement in statements for target in statement.targets}
    steps: dict[StreamName, Step] = {}

    def visit(statement: Statement) -> Step:
        if statement.target not in steps:
            upstream = {name: visit(writers[name]) for name in statement.sources.values() if name in writers}
            steps[statement.target] = _step(statement, upstream)
        return steps[statement.target]

    return tuple(sorted(map(visit, statements), key=lambda step: step.level))


def functions_of(steps: Sequence[Step]) -> tuple[DeclaredFunction, ...]:
    """The functions that the steps use."""
    return tuple({each.spark_name: each for step in steps for each in step.statement.functions}.values())


def _step(statement: Statement, upstream: Mapping[StreamName, Step]) -> Step:
    delays = {}
    for name in statement.sources.values():
        source = upstream.get(name)
        if source is not None and source.statement.options.mode == "complete":
            raise InvalidSql(
                f"'{name}' is rewritten with every batch (mode = complete), so it can't be read as a stream",
                line=statement.line,
            )
        delays[name] = _delay(statement, name, source)
    level = 1 + max((step.level for step in upstream.values()), default=-1)
    return Step(statement, frozenset(upstream), level, MappingProxyType(delays))


def _delay(statement: Statement, name: StreamName, source: Step | None) -> int:
    """The watermark's delay for one source, in µs."""
    if statement.options.watermark_us is not None:
        return statement.options.watermark_us
    if source is None or name not in source.statement.results:
        return WATERMARK_US  # an outside source, or a stream of late events
    slowest = max(source.delays_us.values())
    if source.statement.windowed is not None and source.statement.windowed.emit is not None:
        # Early and late results have the end of their window too.
        return slowest + source.statement.horizon_us + source.statement.windowed.emit.late_us
    if source.statement.windows:
        return 0  # closed windows are written in the order of their ends, and those of one batch are read together
    # Rows that pass through keep the disorder of the source; a join adds the time one side waited for the other.
    return slowest + WATERMARK_US if source.statement.joins else slowest


def _fingerprint(statement: Statement) -> str:
    """A digest of everything that a checkpoint depends on: everything but comments, layout, the trigger, the idle time
    and when load is shed."""
    free = ("trigger_us", "idle_us", "shed", "start_query")
    options = {name: value for name, value in asdict(statement.options).items() if name not in free}
    if options["shed_priority"] is None:  # digests are kept, also those from before this option
        del options["shed_priority"]
    del options["handler"]
    words = query_words(statement)
    values = [[name, str(value)] for name, value in sorted(statement.arguments.items())]
    sides = [[str(each.target), each.copies, _words(each.condition)] for each in statement.sides]
    into: list[object] = [sides, str(statement.late_target)] if sides or statement.late_into else []
    into += [[str(each.target), each.copies, _words(each.condition), each.hops_max] for each in statement.feedback]
    parts = [str(statement.target), options, words, *([values] if values else []), *([into] if into else [])]
    if statement.handler is not None:
        parts.append({"handler": statement.handler.spark_name})
    canonical = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def query_words(statement: Statement) -> list[list[str]]:
    """The tokens of the query, without comments and layout."""
    names = {view: str(name) for view, name in (*statement.sources.items(), *statement.tables.items())}
    names |= {view: f"versions of {name}" for view, name in names.items() if statement.has_versions(view)}
    # Views are numbered by the statement's position in the file, which may change, so use the streams' names.
    return [[kind, names.get(text, text)] for kind, text in _words(statement.query)]


def _words(sql: str) -> list[list[str]]:
    return [[token.token_type.name, token.text] for token in Spark().tokenize(sql)]


# start of the first batch


def resolve_starts(store: Store, step: Step, restart: Restart, going_on: Collection[StreamName] = ()) -> dict[str, str]:
    """For each source of the step, the cut (as text) at which its first batch begins.

    Sources that the pipeline does not write begin where the restart says, else where the statement says, else at the
    head. So do the streams `going_on`, which statements write that continue while this one starts over. Other sources
    that the pipeline writes itself begin at their tail: earlier events belong to an earlier generation. Raises
    InvalidSql for a missing stream, InvalidArgument for a place that is not valid for it.
    """
    starts = {}
    for name in dict.fromkeys(step.statement.sources.values()):
        if not store.streams.exists(name):
            raise InvalidSql(f"stream '{name}' not found", line=step.statement.line)
        if name in step.internal and name not in going_on:
            starts[str(name)] = str(store.cuts.tail(name))
            continue
        place = _place(store, name, restart.places) if restart.places else step.statement.options.start or "head"
        try:
            starts[str(name)] = str(_cut(store, name, place, restart.by))
        except AnabranchError as exc:
            raise InvalidArgument(f"'{name}' can't be read from {place}: {exc}") from exc
    return starts


def _place(store: Store, name: StreamName, places: Sequence[str]) -> str:
    """The place that applies to this stream: a cut or pointer of the stream, else a place that is valid for any."""
    ident = store.streams.get(name).id
    general = None
    for text in places:
        place = parse_place(text, store.runtime.settings.times)
        if not isinstance(place, StreamCut | EventPointer):
            general = text
        elif place.stream == ident:
            return text
    if general is None:
        raise InvalidCut(
            f"no --from says where '{name}' begins: the cuts given belong to other streams; add one of its own, "
            "or head, tail or a time for the rest"
        )
    return general


def _cut(store: Store, name: StreamName, text: str, by: str) -> StreamCut:
    place: Place = parse_place(text, store.runtime.settings.times)
    if isinstance(place, Edge):
        return store.cuts.head(name) if place is Edge.HEAD else store.cuts.tail(name)
    if isinstance(place, StreamCut):
        store.reader(name, start=place).close()  # checks it
        return place
    if isinstance(place, EventPointer):
        with store.reader(name, start=place) as reader:
            return reader.position
    return store.cuts.at(name, place, by=by, count_misplaced=False)


def replay_steps(steps: Sequence[Step], version: int) -> tuple[Step, ...]:
    """The steps of a replay: the same ones in the same order, which write the streams of the replay of this version.
    Where they read each other's results, they read those of the replay. Raises InvalidSql for a statement with
    feedback, which would feed the same events back again."""
    for step in steps:
        if step.statement.feedback:
            raise InvalidSql("a statement with FEEDBACK can't be replayed", line=step.statement.line)
    written = {name for step in steps for name in step.statement.targets}

    def name(before: StreamName) -> StreamName:
        return replay_stream(before, version) if before in written else before

    def renamed(step: Step) -> Step:
        old = step.statement
        statement = replace(
            old,
            target=name(old.target),
            sources={view: name(each) for view, each in old.sources.items()},
            tables={view: name(each) for view, each in old.tables.items()},
            sides=tuple(replace(side, target=name(side.target)) for side in old.sides),
            late_into=name(old.late_target) if old.options.late else None,
        )
        delays = MappingProxyType({name(each): delay for each, delay in step.delays_us.items()})
        return Step(statement, frozenset(map(name, step.internal)), step.level, delays)

    return tuple(map(renamed, steps))
