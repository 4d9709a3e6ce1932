"""Hostile texts in every language that the store parses itself: each gives a result or InvalidArgument, and soon."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidSql, TooLarge
from anabranch.query.dialects.translate import DIALECTS, DialectOptions, translate
from anabranch.query.influxql.parser import parse_query
from anabranch.query.influxql.syntax import Select, walk
from anabranch.query.promql.parser import parse_promql
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.sql_tokens import tokenize


def _pipeline(text: str) -> object:
    return parse(text.replace("FROM s.t", "FROM STREAM s.t"))


def _statement(text: str) -> object:
    return _pipeline(f"CREATE STREAM s.out AS {text}")


def _influxql(text: str) -> object:
    found = parse_query(text)
    for statement in found:
        if isinstance(statement, Select):  # what answers it goes over the whole of it
            for expression in (*(field.expression for field in statement.fields), statement.where):
                list(walk(expression)) if expression is not None else None
    return found


PARSERS: Mapping[str, Callable[[str], object]] = {
    "pipelines": _pipeline,
    "a pipeline's query": _statement,
    "InfluxQL": _influxql,
    "PromQL": parse_promql,
    **{
        dialect: partial(translate, dialect=dialect, options=DialectOptions(scope="s", time="at"))
        for dialect in DIALECTS
    },
}
_ALIKE = set(DIALECTS) - {"flink", "azure"}  # the others go the same way
N = 2_000
TEXTS: Mapping[str, str] = {
    "brackets": f"SELECT {'(' * N}1{')' * N} FROM s.t",
    "brackets that are not closed": f"SELECT {'(' * N}",
    "brackets alone": "(" * N + "1" + ")" * N,
    "brackets of arrays": f"SELECT {'[' * N}1{']' * N} FROM s.t",
    "braces": "{" * N,
    "a long sum": f"SELECT {'+'.join('a' * N)} FROM s.t",
    "a long sum alone": "+".join("a" * N),
    "a long condition": f"SELECT a FROM s.t WHERE {' AND '.join(['a = 1'] * N)}",
    "signs": f"SELECT {'- ' * N}1 FROM s.t",
    "signs alone": "-" * N + "1",
    "negations": f"SELECT a FROM s.t WHERE {'NOT ' * N}a",
    "cases": f"SELECT {'CASE WHEN ' * N}1{' THEN 1 END' * N} FROM s.t",
    "calls": f"SELECT {'abs(' * N}a{')' * N} FROM s.t",
    "calls alone": f"{'abs(' * N}a{')' * N}",
    "casts": f"SELECT {'CAST(' * N}a{' AS INT)' * N} FROM s.t",
    "types": f"SELECT CAST(a AS {'ARRAY<' * N}INT{'>' * N}) FROM s.t",
    "subqueries": f"SELECT a FROM {'(SELECT a FROM ' * N}s.t{')' * N}",
    "statements": "SELECT a FROM s.t;" * N,
    "semicolons": ";" * N,
    "a quote after many lines": "\n" * 20_000 + "'",
    "a comment after many lines": "SELECT a\n" * N + "/*",
    "many comments that are not closed": "SELECT a" + "/* /" * 50_000,
    "comments in comments": "/*" * N + "*/" * N,
    "a long name": f"SELECT {'a' * 100_000} FROM s.t",
    "a long number": f"SELECT {'1' * 100_000} FROM s.t",
    "a number too long for a double": f"SELECT {'1' * 500} FROM s.t",
    "a long limit": f"SELECT a FROM s.t LIMIT {'1' * 5_000}",
    "a large limit": f"SELECT a FROM s.t LIMIT {'1' * 900}",
    "a large window": f"SELECT mean(a) FROM s.t GROUP BY time({'9' * 900}s)",
    "a large option": f"CREATE STREAM s.out WITH (segments = '{'9' * 5_000}') AS SELECT a FROM s.t",
    "a large interval": f"SELECT a FROM s.t WHERE a > INTERVAL '{'9' * 100_000}' DAY",
    "fields of fields": f"SELECT {'a.' * N}a FROM s.t",
    "unions": "SELECT a FROM s.t" + " UNION SELECT a FROM s.t" * (N // 10),
    "a NUL": "SELECT 'a\0b', a\0b FROM s.t",
    "half a surrogate pair": "SELECT '\ud800' FROM s.t",
    "half a surrogate pair as a name": "SELECT \udfff FROM s.t",
    "text from right to left": "SELECT '\u202e\U0001f600\uffff' FROM s.t WHERE \u00e9 = 1",
    "digits that are not ASCII": "SELECT \u0661\u0662, \u00b2 FROM s.t LIMIT \u0663",
    "spaces that are not ASCII": "SELECT\u00a0a\u2003FROM\u2028s.t",
    "quotes in a quote": f"SELECT `{'``' * N}` FROM s.t",
    "a quote of backslashes": f"SELECT '{chr(92) * (N + 1)}' FROM s.t",
    "nothing": "",
    "space": " \n\t",
    "a half window": "EMIT ON WINDOW CLOSE",
    "a pattern": f"SELECT /{'(' * N}{')' * N}/ FROM s.t",
    "a pattern that takes memory": "SELECT a FROM s.t WHERE b =~ /((a{1000}){1000}){1000}/",
    "statements that feed each other": ";".join(f"CREATE STREAM s.o{n} AS SELECT * FROM STREAM s.o{n + 1}" for n in range(N)),
}  # fmt: skip


def result_or_refusal(parser: Callable[[str], object], text: str) -> None:
    message = ""
    try:
        parser(text)
    except InvalidArgument as exc:
        message = str(exc)
    assert len(message) < 2_000, "the message repeats the text"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "language", [each if each not in _ALIKE else pytest.param(each, marks=pytest.mark.slow) for each in PARSERS]
)
def test_a_hostile_text_gives_a_result_or_a_refusal(language: str, text: str) -> None:
    result_or_refusal(PARSERS[language], TEXTS[text])


@pytest.mark.parametrize("language", PARSERS)
def test_a_text_of_ten_megabytes_is_refused_unread(language: str) -> None:
    with pytest.raises(TooLarge, match=r"over the limit of (262,144|1,048,576)"):
        PARSERS[language]("SELECT a FROM s.t " * 600_000)


# What the languages consist of, so that chance gets further than the first word.
_LANGUAGE = """
SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET AS AND OR NOT IN IS NULL DISTINCT FROM JOIN ON UNION ALL WITH CASE WHEN THEN ELSE
END CAST INTERVAL EXTRACT BETWEEN LIKE CREATE STREAM TABLE VIEW FUNCTION RETURNS PYTHON WASM DECLARE PARAMETER DEFAULT INSERT
INTO WATERMARK FOR TUMBLE HOP SESSION DESCRIPTOR WINDOW TUMBLING HOPPING SIZE ADVANCE GRACE EMIT CHANGES CLOSE SECOND SECONDS
TumblingWindow SessionWindow TIMESTAMP SYSTEM SHOW TAG KEYS VALUES FIELD DROP CONTINUOUS QUERY BEGIN RESAMPLE EVERY time fill mean
count sum previous linear tz SLIMIT by without offset bool ignoring group_left rate start end session_window window count_window
drift DETECT FEEDBACK WITHIN HOPS COPY LATE KEEP shed handler s.t STREAM a b x1 `q` "q" 'text' '10 seconds' 10s 5m 1 2.5 1e9 0x1f
:name $name @ ( ) [ ] { } , ; . : :: + - * / % ^ & | = != <> <= >= =~ !~ < > /x/ ' " ` /* */ -- \\ é \0 😀 => -> || $$
"""
_WORDS = (*_LANGUAGE.split(), "\n", "\t")
_texts = st.one_of(
    st.lists(st.sampled_from(_WORDS), max_size=40).map(" ".join),
    st.lists(st.sampled_from(_WORDS), max_size=20).map("".join),
    st.text(max_size=60),
)


@settings(max_examples=150, deadline=None)
@given(text=_texts, language=st.sampled_from(sorted(PARSERS)))
def test_any_text_gives_a_result_or_a_refusal(text: str, language: str) -> None:
    result_or_refusal(PARSERS[language], text)


_GOOD = (
    (
        "CREATE STREAM s.out WITH (key = a, time = at, watermark = '5 seconds', segments = 2) INTO s.hot WHEN a > 1 AS "
        "SELECT window.end AS at, a, count(*) AS n FROM STREAM s.t GROUP BY window(at, '10 seconds'), a"
    ),
    "DECLARE PARAMETER size INTERVAL DEFAULT '10 seconds'; CREATE STREAM s.out AS SELECT :size AS x FROM STREAM s.t",
    "CREATE FUNCTION f(a DOUBLE) RETURNS DOUBLE AS PYTHON 'm:f'; CREATE STREAM s.out AS SELECT f(a) AS b FROM STREAM s.t",
    (
        "SELECT mean(a), top(b, 3) FROM db..m WHERE h =~ /x/ AND time > now() - 5m GROUP BY time(1m, 10s), h fill(linear) ORDER BY "
        "time DESC LIMIT 5 SLIMIT 2 tz('Europe/Berlin')"
    ),
    'CREATE CONTINUOUS QUERY c ON db RESAMPLE EVERY 5m FOR 1h BEGIN SELECT sum(a) INTO "o" FROM m GROUP BY time(1m), * END',
    "sum by (h) (rate(cpu{h=~'a.*'}[5m] offset 1h)) / ignoring(h) group_left(x) (b @ 1700000000 > bool 2)",
    (
        "INSERT INTO o SELECT window_start, sum(a) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY "
        "window_start, window_end"
    ),
    "CREATE TABLE o AS SELECT d, count(*) FROM t WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 1 SECOND) GROUP BY d EMIT CHANGES;",
    "SELECT System.Timestamp() AS at, avg(a) INTO o FROM t TIMESTAMP BY at GROUP BY d, TumblingWindow(second, 10)",
)


@settings(max_examples=150, deadline=None)
@given(text=st.sampled_from(_GOOD), seed=st.integers(0, 1 << 32), language=st.sampled_from(sorted(PARSERS)))
def test_a_good_text_with_changes_gives_a_result_or_a_refusal(text: str, seed: int, language: str) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(text) + 1), chance.choice((0, 0, 1, 5, 20))
        text = text[:at] + chance.choice(("", "", *_WORDS)) + text[at + length :]
    result_or_refusal(PARSERS[language], text)


def test_long_expressions_and_numbers_of_influxql_are_refused_at_their_place() -> None:
    most = limits.INFLUXQL_OPERATORS_MAX
    parse_query(f"SELECT a FROM t WHERE {' OR '.join(['(a = 1)'] * (most // 2))}")
    parse_query(f"SELECT {', '.join(['a + 1'] * (most + 1))} FROM t")  # each an expression of its own
    with pytest.raises(InvalidSql, match=f"an expression has more than {most} operators at line 1, char"):
        parse_query(f"SELECT a FROM t WHERE {' OR '.join(['a'] * (most + 2))}")
    with pytest.raises(InvalidSql, match=r"unable to parse number 111.*at line 1, char 8"):
        parse_query(f"SELECT {'1' * 400} FROM t")
    with pytest.raises(InvalidSql, match="overflowed duration 99999999999999w at line 1"):
        parse_query("SELECT a FROM t WHERE time > now() - 99999999999999w")


def test_a_quote_or_comment_that_is_not_closed_is_said_with_its_line() -> None:
    for text, line in (
        ("a\nb 'c\nd", 2),
        ("a 'x\ny' \n\"q\nz", 3),
        ("a\n/* b */ c\n/* d\n", 3),
        ("'abc\\", 1),
        ("\n\n-- '\n'x\\'", 4),
        ("`a", 1),
    ):
        with pytest.raises(InvalidSql) as refused:
            tokenize(text)
        assert refused.value.line == line, text


def test_places_in_messages_are_those_of_the_whole_text() -> None:
    text = "SELECT a FROM s.t;\n\n  SELECT\n nothing(a) FROM s.t"
    with pytest.raises(InvalidSql, match=r"line 4: the function nothing .*\(character 2\)"):
        translate(text, "flink")
    with pytest.raises(InvalidSql, match="line 4: "):
        translate("SELECT a FROM s.t;\n\nSELECT a\nFROM FROM WHERE", "flink")


def test_more_statements_than_a_file_may_have_are_refused_at_the_first_of_them() -> None:
    one = "CREATE STREAM s.o{} AS SELECT a FROM STREAM s.t;\n"
    whole = "".join(map(one.format, range(limits.PIPELINE_STATEMENTS_MAX)))
    assert len(parse(whole)) == limits.PIPELINE_STATEMENTS_MAX
    with pytest.raises(InvalidSql, match="line 251: there are 251 statements, over the limit of 250"):
        parse(whole + one.format("x"))
