"""How deep a statement may be, before Spark's own parser recurses into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql.parse import parse

MAX = limits.PIPELINE_NESTING_MAX
FORMS: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: f"{'(' * n}a{')' * n}",
    "calls": lambda n: f"{'abs(' * n}a{')' * n}",
    "indexes": lambda n: f"{'a[' * n}0{']' * n}",
    "CASE": lambda n: f"{'CASE WHEN a THEN ' * n}1{' END' * n}",
    "signs": lambda n: f"{'- ' * n}a",
    "NOT": lambda n: f"{'NOT ' * n}a",
    "types": lambda n: f"NULL::{'ARRAY<' * n}INT{'>' * n}",
    "all together": lambda n: f"{'CASE WHEN (' * (n // 2)}NOT {'- ' * (n % 2)}a{') THEN 1 END' * (n // 2)}",
}


def statement(value: str) -> str:
    return f"CREATE STREAM o.out AS\nSELECT\n{value} AS v FROM STREAM s.t"


@pytest.mark.parametrize("form", FORMS)
def test_a_statement_may_be_so_deep_and_no_deeper(form: str) -> None:
    deepest = MAX - 1 if form == "all together" else MAX  # its NOT counts too
    parse(statement(FORMS[form](deepest)))
    with pytest.raises(InvalidSql, match=r"line 3: brackets, CASE or signs are nested more than 100 deep"):
        parse(statement(FORMS[form](deepest + 2)))


def test_what_stands_side_by_side_is_not_deep() -> None:
    parse(statement(" + ".join(["(a)", "a[0]", "CASE WHEN a < 1 THEN - 1 END", "array(a)"] * 500)))
    parse(statement("a.end, s.case, '((((', `((((`" + ", w.end AS e /* (((( */" * 500))
    parse(
        ";\n".join(f"CREATE STREAM o.o{n} AS SELECT (a) FROM STREAM s.t" for n in range(limits.PIPELINE_STATEMENTS_MAX))
    )


@pytest.mark.slow
def test_a_statement_has_so_many_tokens_and_no_more() -> None:
    begin = statement("a").count(" ") + 4  # spaces and line ends between its words, and two dots
    most = (limits.PIPELINE_TOKENS_MAX - begin) // 2
    listed = [statement(f"array({','.join('1' * count)})") for count in (most - 10, most + 10)]
    parse(";".join(listed[:1]))
    with pytest.raises(InvalidSql, match=r"line 3: .* more than 100,000 words and signs: put the values"):
        parse(listed[1])
