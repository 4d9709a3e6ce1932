"""The clauses before AS that say where further rows go: INTO, COPY INTO, INTO LATE and FEEDBACK."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.model.names import StreamName
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.side_outputs import HOPS_MAX, SIDE_OUTPUTS_MAX, SideOutput
from anabranch.spark.pipelines.sql_tokens import outside_parentheses, word_of
from anabranch.spark.pipelines.statement import StatementOptions

__all__ = ["OutputClauses", "outputs"]


@dataclass(frozen=True, slots=True)
class OutputClauses:
    """The side outputs of a statement, those that lead back, and the stream for late events if it is named."""

    sides: tuple[SideOutput, ...]
    feedback: tuple[SideOutput, ...]
    late: StreamName | None

    @property
    def targets(self) -> tuple[StreamName, ...]:
        """The streams that the clauses name."""
        late = () if self.late is None else (self.late,)
        return (*(each.target for each in (*self.sides, *self.feedback)), *late)


def outputs(cursor: Cursor, options: StatementOptions) -> OutputClauses:
    """Step over the clauses before AS. Raises InvalidSql."""
    sides: list[SideOutput] = []
    feedback: list[SideOutput] = []
    late: StreamName | None = None
    while cursor.word() in ("INTO", "COPY", "FEEDBACK"):
        opened = cursor.at
        copies = cursor.take("COPY")
        hops_max = _hops(cursor) if cursor.take("FEEDBACK") else None
        if not cursor.take("INTO"):
            cursor.fail("expected INTO after COPY" if hops_max is None else "expected INTO after HOPS")
        if feedback and hops_max is None:
            cursor.fail("write INTO before FEEDBACK: INTO takes its rows first", at=opened)
        if not copies and hops_max is None and not cursor.is_dot(cursor.at + 1) and cursor.take("LATE"):
            if late is not None or not options.late:
                cursor.fail("expected at most one INTO LATE, and none with late = false", at=opened)
            late = cursor.stream_name("INTO LATE")
        else:
            (sides if hops_max is None else feedback).append(_output(cursor, copies, hops_max))
    if (sides or feedback) and options.mode != "append":
        cursor.fail("a statement with side outputs can't have mode = complete", at=0)
    if len(sides) + len(feedback) > SIDE_OUTPUTS_MAX:
        cursor.fail(f"a statement has at most {SIDE_OUTPUTS_MAX} side outputs", at=0)
    return OutputClauses(tuple(sides), tuple(feedback), late)


def _output(cursor: Cursor, copies: bool, hops_max: int | None) -> SideOutput:
    """Step over `scope.name WHEN condition`."""
    target = cursor.stream_name("INTO")
    if not cursor.take("WHEN"):
        cursor.fail("expected WHEN and a condition after INTO scope.name")
    begin = cursor.at
    outside = outside_parentheses(cursor.tokens, begin)
    cursor.at = next((index for index in outside if _begins_clause(cursor, index)), len(cursor.tokens))
    if cursor.at == begin:
        cursor.fail("expected a condition after WHEN")
    return SideOutput(target, cursor.text_of(begin, cursor.at), cursor.tokens[begin].line, copies, hops_max)


def _begins_clause(cursor: Cursor, index: int) -> bool:
    """True for INTO, AS, COPY INTO, COPY FEEDBACK and FEEDBACK WITHIN. A column may be called copy or feedback, too."""
    words = tuple(map(word_of, cursor.tokens[index : index + 2]))
    return words[0] in ("INTO", "AS") or words in (("COPY", "INTO"), ("COPY", "FEEDBACK"), ("FEEDBACK", "WITHIN"))


def _hops(cursor: Cursor) -> int:
    form = f"expected FEEDBACK WITHIN n HOPS INTO scope.name WHEN condition, with n from 1 to {HOPS_MAX:,}"
    if not cursor.take("WITHIN"):
        cursor.fail(form)
    value = cursor.value()
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= HOPS_MAX or not cursor.take("HOPS"):
        cursor.fail(form, at=cursor.at - 1)
    return value
