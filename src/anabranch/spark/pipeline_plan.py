"""From SQL to a plan: in which order statements start, how long each waits for stragglers, and where each begins.

Knows the store's streams, but not Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from sqlglot.dialects.spark import Spark

from anabranch.errors import AnabranchError, InvalidArgument, InvalidCut, InvalidSql
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.model.times import to_datetime, to_micros
from anabranch.readers.place import Place, parse_place
from anabranch.spark.pipeline_row import Output, Restart
from anabranch.spark.sql import parse
from anabranch.spark.statement import Statement
from anabranch.store import Store

__all__ = ["WATERMARK_US", "Step", "place_text", "plan", "resolve_starts"]

WATERMARK_US: Final = 10_000_000  # the delay that events are allowed where a statement does not say


@dataclass(frozen=True, slots=True)
class Step:
    """A statement with what follows from its place in the file.

    `internal` are those of its sources that other statements of the file write; `level` is 0 for a statement without
    such sources, else one more than the highest of theirs. `delays_us` is the watermark's delay for each source.
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
    def output(self) -> Output:
        """The statement as the catalog row keeps it."""
        statement = self.statement
        late = str(statement.late_target) if statement.options.late else None
        sources = tuple(str(name) for name in statement.sources.values())
        return Output(self.target, late, sources, statement.line, _fingerprint(statement))


def plan(text: str) -> tuple[Step, ...]:
    """The steps of a file, each behind those whose results it reads. Raises InvalidSql."""
    statements = parse(text)
    writers = {target: statement for statement in statements for target in statement.targets}
    steps: dict[StreamName, Step] = {}

    def visit(statement: Statement) -> Step:
        if statement.target not in steps:
            upstream = {name: visit(writers[name]) for name in statement.sources.values() if name in writers}
            steps[statement.target] = _step(statement, upstream)
        return steps[statement.target]

    return tuple(sorted(map(visit, statements), key=lambda step: step.level))


def _step(statement: Statement, upstream: Mapping[StreamName, Step]) -> Step:
    delays = {}
    for name in statement.sources.values():
        source = upstream.get(name)
        if source is not None and source.statement.options.mode == "complete":
            raise InvalidSql(
                f"'{name}' is written anew with every batch (mode = complete), so it can't be read as a stream",
                line=statement.line,
            )
        delays[name] = _delay(statement, name, source)
    level = 1 + max((step.level for step in upstream.values()), default=-1)
    return Step(statement, frozenset(upstream), level, MappingProxyType(delays))


def _delay(statement: Statement, name: StreamName, source: Step | None) -> int:
    """How long events of one source are waited for."""
    if statement.options.watermark_us is not None:
        return statement.options.watermark_us
    if source is None or name != source.statement.target:
        return WATERMARK_US  # from outside, or the side stream of late events
    if source.statement.windows:
        return 0  # closed windows come in the order of their ends, and those of one batch are read together
    slowest = max(source.delays_us.values())
    # What passes through unchanged is as disordered as it came; a join adds what one side had to wait for the other.
    return slowest if len(source.statement.sources) == 1 else slowest + WATERMARK_US


def _fingerprint(statement: Statement) -> str:
    """What a checkpoint depends on: not comments, layout or the trigger."""
    options = {name: value for name, value in asdict(statement.options).items() if name != "trigger_us"}
    words = [[token.token_type.name, token.text] for token in Spark().tokenize(statement.query)]
    names = {view: str(name) for view, name in (*statement.sources.items(), *statement.tables.items())}
    # Views are numbered by the statement's place in the file, which may change.
    words = [[kind, names.get(text, text)] for kind, text in words]
    told = json.dumps([str(statement.target), options, words], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


# where a first batch begins


def resolve_starts(store: Store, step: Step, restart: Restart) -> dict[str, str]:
    """For each source of the step, the text of the cut at which its first batch begins.

    Sources from outside begin where the restart, else the statement says, else at the head. Sources that the pipeline
    writes itself begin at their tail: what lies before it belongs to an earlier generation. Raises InvalidSql for a stream
    that is missing, InvalidArgument for a place that does not fit.
    """
    starts = {}
    for name in dict.fromkeys(step.statement.sources.values()):
        if not store.streams.exists(name):
            raise InvalidSql(f"there is no stream '{name}'", line=step.statement.line)
        if name in step.internal:
            starts[str(name)] = str(store.streams.tail(name))
            continue
        place = _place(store, name, restart.places) if restart.places else step.statement.options.start or "head"
        try:
            starts[str(name)] = str(_cut(store, name, place, restart.by))
        except AnabranchError as exc:
            raise InvalidArgument(f"'{name}' can't be read from {place}: {exc}") from exc
    return starts


def place_text(place: Place) -> str:
    """A place as text that `parse_place` understands. Raises InvalidArgument where a text is none."""
    if isinstance(place, str):
        parse_place(place)
        return place
    if isinstance(place, Edge):
        return place.value
    if isinstance(place, int | datetime):
        return to_datetime(to_micros(place)).isoformat()
    return str(place)


def _place(store: Store, name: StreamName, places: Sequence[str]) -> str:
    """The place that is meant for this stream: a cut or pointer of its own, else one that suits any stream."""
    ident = store.streams.get(name).id
    general = None
    for text in places:
        place = parse_place(text)
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
    place: Place = parse_place(text)
    if isinstance(place, Edge):
        return store.streams.head(name) if place is Edge.HEAD else store.streams.tail(name)
    if isinstance(place, StreamCut):
        store.reader(name, start=place).close()  # checks it
        return place
    if isinstance(place, EventPointer):
        with store.reader(name, start=place) as reader:
            return reader.position
    return store.streams.cut_at(name, place, by=by)
