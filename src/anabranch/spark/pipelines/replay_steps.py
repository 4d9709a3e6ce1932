"""The steps of a replay: the steps of the query, writing to new streams instead of its result streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from anabranch.deployments.replay import replay_stream
from anabranch.errors import InvalidSql
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.plan import Step

__all__ = ["replay_steps"]


def replay_steps(steps: Sequence[Step], version: int) -> tuple[Step, ...]:
    """The same steps in the same order, which write the streams of the replay of this version. What they read of each
    other's results is that of the replay too. Raises InvalidSql for a statement with feedback, which would feed the
    same events back again."""
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
