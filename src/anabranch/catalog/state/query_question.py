"""Questions about SQL of queries, which only a host can answer, since only hosts have Spark; and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned
from anabranch.catalog.state.query_version import QueryFile
from anabranch.model.ids import Micros

Verdict: TypeAlias = Literal["keeps state", "restarts", "refused", "new", "removed"]
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class ValidatedStatement:
    """A statement that can run: `target` is the stream that it feeds, with the Arrow types of its columns by their names;
    `sources` are the streams that it follows and `tables` those that it reads as they are; `sides`, `late` and `feedback`,
    which lead back, are its other outputs."""

    target: str
    line: int
    columns: Mapping[str, str]
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    sides: tuple[str, ...]
    late: str | None
    feedback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredParameter:
    """A parameter with its type, the default as text (None: it needs a value), and the line of its declaration."""

    name: str
    type: str
    default: str | None
    line: int


@dataclass(frozen=True, slots=True)
class ValidatedQuery:
    """A query that can run: its statements in the order in which they start, and the parameters that it declares."""

    statements: tuple[ValidatedStatement, ...]
    parameters: tuple[DeclaredParameter, ...]


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """What an upgrade does with a statement, and why. `keeps state`: it continues where it is, with its state.
    `restarts`: it loses its state, and needs a place to start from. `refused`: nothing of the upgrade is done. `new`:
    it begins as in a first run. `removed`: it ends, and its results stay. `line` is in the new text, or for `removed`
    in the old one."""

    target: str
    line: int
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """What an upgrade from version `version` would do with each statement."""

    version: int
    statements: tuple[StatementPlan, ...]

    @property
    def restarts(self) -> tuple[str, ...]:
        """The targets of the statements that need a place to start from."""
        return tuple(each.target for each in self.statements if each.verdict == "restarts")

    @property
    def refused(self) -> tuple[StatementPlan, ...]:
        """The statements because of which the upgrade is refused."""
        return tuple(each for each in self.statements if each.verdict == "refused")


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Which rows are asked for, at most `rows_max`: of the state of the statement that feeds `target`, after
    micro-batch `batch` (None: the last one that is committed); with `key` only rows whose key has a part with this
    text."""

    target: str
    key: str | None
    batch: int | None
    rows_max: int


@dataclass(frozen=True, slots=True)
class StateRow:
    """A row of the state of a statement: of Spark's `operator` of this name, and of one of its `part`s: the side of a join, or
    a variable of a stateful function, else `state`. Members of `key` and `value` are plain JSON: times are text, bytes are
    how many they are."""

    operator: str
    part: str
    key: Mapping[str, Any]
    value: Mapping[str, Any]

    def to_json(self) -> dict[str, object]:
        """The row as a JSON object."""
        return {"operator": self.operator, "part": self.part, "key": dict(self.key), "value": dict(self.value)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StateRow:
        """The inverse of `to_json`. Raises LookupError, TypeError."""
        return cls(value["operator"], value["part"], dict(value["key"]), dict(value["value"]))


@dataclass(frozen=True, slots=True)
class CommittedState:
    """Rows of the state of the statement that feeds `target`, as committed with micro-batch `batch`. `more`: there are others that
    match."""

    target: str
    batch: int
    rows: tuple[StateRow, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class QueryQuestion:
    """`kind` says what is asked: whether the `text` can run, what an upgrade of the query `name` to it would do, or
    which rows are in the state of that query (`wanted`). `files` belong to the text; their contents are not here.
    Answered by `validated`, `plan`, `state`, or an `error`, with its line if it is one of the SQL. `taken`: a host is
    answering it. No caller waits for it after `until`."""

    id: str
    kind: Literal["validate", "plan", "state"]
    name: str | None
    text: str
    parameters: Mapping[str, str]
    until: Micros
    files: tuple[QueryFile, ...] = ()
    taken: bool = False
    validated: ValidatedQuery | None = None
    plan: UpgradePlan | None = None
    wanted: StateWanted | None = None
    state: CommittedState | None = None
    error: str | None = None
    error_line: int | None = None

    @property
    def answered(self) -> bool:
        """True once a host has answered."""
        return any(each is not None for each in (self.validated, self.plan, self.state, self.error))


QUERY_QUESTION: Final[StateKind[str, QueryQuestion]] = state_kind(
    "query_question",
    about=(
        "Questions about SQL of queries, which only a host can answer, since only hosts have Spark; and their answers."
    ),
    by="the question's id",
    key=TEXT_KEY,
    value=versioned(codec_of(QueryQuestion), FORMAT, "question about a query"),
    identity=lambda question: question.id,
    example=(
        "5d41402abc4b2a76",
        QueryQuestion(
            "5d41402abc4b2a76",
            "plan",
            "means",
            "CREATE STREAM iot.means AS SELECT device, celsius FROM STREAM iot.sensors",
            {},
            Micros(1_767_225_660_000_000),
            plan=UpgradePlan(2, (StatementPlan("iot/means", 1, "restarts", "its query has changed"),)),
        ),
    ),
)
