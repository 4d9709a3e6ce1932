"""Declarations of parameters, found without a parser of SQL: where a tokenizer finds them, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from anabranch.core.sql_parameters import Parameter, declarations
from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.sql_tokens import is_declaration, split_statements

PIECES = st.lists(
    st.sampled_from(
        [
            *("DECLARE PARAMETER a INT", "declare\nparameter `b``c` STRING", "DECLARE /* x; */ PARAMETER d DATE"),
            *(";", ";", "\n", " ", "--", "/*", "*/", "'", '"', "`", "\\", "r", "R'", "x", "SELECT", "5", "$", "é", ":"),
            *("DECLARE", "PARAMETER", "DEFAULT 'x;'", "DEFAULT -5", "DEFAULT r'\\'", "-- DECLARE PARAMETER e INT;\n"),
        ]
    ),
    max_size=14,
).map(" ".join)


@example(text="/* /* x */; DECLARE PARAMETER a INT; */ ; DECLARE PARAMETER b INT")
@example(text="'\\'; DECLARE PARAMETER a INT; '; DECLARE PARAMETER b INT")
@example(text="r'\\'; DECLARE PARAMETER a INT; SELECT ' '")
@example(text="`\\`; DECLARE PARAMETER a INT; SELECT ` `")
@given(text=PIECES)
def test_declarations_are_where_a_tokenizer_finds_them(text: str) -> None:
    try:
        pieces = split_statements(list(Spark().tokenize(text)))
    except TokenError:  # something is not closed
        return
    declared = [tokens for tokens in pieces if is_declaration(tokens)]
    if not declared:
        assert declarations(text) == ()
        return
    try:
        found = declarations(text)
    except InvalidSql:
        return
    assert [each.line for each in found] == [1 + text.count("\n", 0, tokens[0].start) for tokens in declared]
    assert [each.name for each in found] == [tokens[2].text for tokens in declared]
    defaults = ["".join(token.text for token in tokens[5:]) or None for tokens in declared]
    assert [each.default for each in found] == defaults


def test_a_declaration_has_a_type_a_default_and_a_meaning() -> None:
    text = (
        "DECLARE PARAMETER a string DEFAULT 'it\\'s\\ta;' ; --  of  a \n"
        "/* DECLARE PARAMETER x INT; */ SELECT 'DECLARE PARAMETER y INT;', `;DECLARE PARAMETER z INT;`;\n"
        "declare -- here\n parameter b BIGINT DEFAULT -5; SELECT 1; -- of nothing\n"
        "DECLARE PARAMETER c BOOLEAN DEFAULT TRUE"
    )
    assert declarations(text) == (
        Parameter("a", "STRING", "it's\ta;", 1, "of  a"),
        Parameter("b", "BIGINT", "-5", 3),
        Parameter("c", "BOOLEAN", "TRUE", 5),
    )


@pytest.mark.parametrize(
    "text",
    [
        "DECLARE PARAMETER a INT; " + "'" * 999_999,
        "DECLARE PARAMETER a INT; " + "'\\" * 400_000,
        "DECLARE PARAMETER a INT; " + "/* /" * 200_000,
        "DECLARE PARAMETER a INT; " + "`" * 999_999,
    ],
    ids=lambda text: text[25:30],
)
def test_texts_that_close_nothing_are_read_once(text: str) -> None:
    # Read again from each quote, it would take longer than a test may.
    assert [each.name for each in declarations(text)] == ["a"]
