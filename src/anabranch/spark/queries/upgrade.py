"""Plans the upgrade of a deployed query: which of its statements keep their state.

Spark itself goes on with the state of another statement wherever the types agree, and then gives wrong numbers. So a changed
statement keeps its state only if the change is on a list of those that are tested to give right ones
(`tests/spark/test_query_upgrades.py`). Uses no Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Final

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from anabranch.catalog.state.query_question import StatementPlan, UpgradePlan
from anabranch.catalog.state.query_version import QueryVersion
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.spark.pipelines.plan import Step, plan, query_words
from anabranch.spark.pipelines.record import PipelineRow
from anabranch.spark.pipelines.statement import Statement

__all__ = ["compare", "is_stateless", "plan_upgrade"]

_STATEFUL: Final = (
    exp.AggFunc,
    exp.Distinct,
    exp.Group,
    exp.Having,
    exp.Join,
    exp.Lateral,
    exp.Limit,
    exp.Offset,
    exp.Order,
    exp.SetOperation,
    exp.UDTF,
    exp.Window,
)


_DEPTH_MAX: Final = 10  # of brackets; the parser takes twice as long for each further one of some functions


def plan_upgrade(row: PipelineRow | None, versions: Sequence[QueryVersion], after: Sequence[Step]) -> UpgradePlan:
    """What becomes of each statement of a query, whose pipeline is `row`, when it runs `after`. `versions` are those that
    are kept. Raises InvalidArgument if the checkpoints belong to none of them."""
    if row is None or not row.outputs or not any(output.checkpoint for output in row.outputs):
        return UpgradePlan(0, tuple(_new(step) for step in after))
    number, before = _checkpointed_steps(row, versions)
    return UpgradePlan(number, compare(before, after))


def compare(before: Sequence[Step], after: Sequence[Step]) -> tuple[StatementPlan, ...]:
    """What becomes of each statement, in the order of `after`; those that are removed come last."""
    known = {step.target: step for step in before}
    found: list[StatementPlan] = []
    restarting: dict[str, str] = {}  # result streams of statements that start over or are new, with their targets
    for step in after:
        made = _new(step) if step.target not in known else _changed(known[step.target], step, restarting)
        if made.verdict in ("restarts", "new"):
            restarting |= dict.fromkeys(map(str, step.statement.targets), step.target)
        found.append(made)
    left = known.keys() - {step.target for step in after}
    ended = [step for step in before if step.target in left]
    return (
        *found,
        *(StatementPlan(each.target, each.statement.line, "removed", "it ends; its results stay") for each in ended),
    )


def _checkpointed_steps(row: PipelineRow, versions: Sequence[QueryVersion]) -> tuple[int, Sequence[Step]]:
    wanted = {output.target: output.fingerprint for output in row.outputs}
    for version in reversed(versions):
        try:
            steps = plan(version.text, version.parameters, version.files)
        except AnabranchError:  # it was deployed, and never ran
            continue
        if {step.target: step.output.fingerprint for step in steps} == wanted:
            return version.number, steps
    raise InvalidArgument(
        f"the statements that the checkpoints of '{row.name}' belong to are not among its versions; deploy it with --from, "
        "which starts all of them over"
    )


def _new(step: Step) -> StatementPlan:
    where = step.statement.options.start or "head"
    return StatementPlan(
        step.target, step.statement.line, "new", f"it begins at its sources' {where}, as in a first run"
    )


def _changed(before: Step, after: Step, restarting: Mapping[str, str]) -> StatementPlan:
    old, new = before.statement, after.statement

    def found(verdict: str, reason: str) -> StatementPlan:
        return StatementPlan(after.target, new.line, verdict, reason)  # type: ignore[arg-type]

    if old.options.mode != new.options.mode:
        return found("refused", f"mode = {new.options.mode} can't continue results of mode = {old.options.mode}")
    for option in ("key", "time"):
        was, now = getattr(old.options, option), getattr(new.options, option)
        if was != now:
            return found("refused", f"its result stream has {option} = {was or 'none given'}, and can't have {now}")
    for name in map(str, new.sources.values()):
        if name in restarting and restarting[name] != after.target:
            return found("restarts", f"it reads {name}, which the statement for {restarting[name]} recomputes")
    if (reason := _outputs_changed(old, new)) is not None:
        return found("restarts", reason)
    same = query_words(old) == query_words(new) and old.arguments == new.arguments
    delays = before.delays_us == after.delays_us and before.internal == after.internal
    if same and delays and old.options.watermark_us == new.options.watermark_us:
        return found("keeps state", "what it computes has not changed")
    joins = new.joins or any(map(new.has_versions, new.tables))
    if same and not joins and new.windowed is None and before.internal == after.internal:
        return found("keeps state", "the changed watermark holds from here on")
    if same:
        return found("restarts", "the changed watermark would not hold for the state of a join or of windows with EMIT")
    if is_stateless(old) and is_stateless(new) and list(old.sources.values()) == list(new.sources.values()):
        return found("keeps state", "it has no state: it continues where it is, and its earlier results stay unchanged")
    return found("restarts", "its query has changed, so the old state does not fit")


def _outputs_changed(old: Statement, new: Statement) -> str | None:
    def sides(statement: Statement) -> Collection[tuple[str, bool, str]]:
        return [(str(each.target), each.copies, f"{each.condition} {each.hops_max}") for each in statement.outputs]

    if sides(old) != sides(new):
        return "its side outputs have changed"
    if (old.options.late, old.late_target) != (new.options.late, new.late_target):
        return "where its late events go has changed"
    return None


def is_stateless(statement: Statement) -> bool:
    """True if each row of its result surely depends on one event alone; False if that can't be shown."""
    if statement.joins or statement.tables or statement.windows or statement.windowed is not None or statement.outputs:
        return False
    if _depth(statement.query) > _DEPTH_MAX:
        return False
    try:
        tree = parse_one(statement.query, dialect="spark")
    except SqlglotError:
        return False
    selects = len(list(tree.find_all(exp.Select)))
    if not isinstance(tree, exp.Select) or selects != 1 or tree.find(*_STATEFUL) is not None:
        return False
    # A function that is neither known to the parser nor declared in the file may be an aggregate.
    declared = {function.spark_name for function in statement.functions}
    return all(each.name in declared for each in tree.find_all(exp.Anonymous))


def _depth(query: str) -> int:
    """How deeply brackets are nested; brackets in string literals count too."""
    steps = (1 if char in "([" else -1 for char in query if char in "([)]")
    return max(accumulate(steps), default=0)
