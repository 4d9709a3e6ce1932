"""Pipeline SQL: what it says, what is rewritten, and what it answers to mistakes."""

from __future__ import annotations

import pytest

from anabranch.core.intervals import parse_interval_us
from anabranch.errors import InvalidSql
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.pipelines.statement import Statement, StatementOptions
from anabranch.spark.pipelines.windows.spans import StatementWindow

SECOND = 1_000_000


def only(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def query_of(query: str) -> str:
    return only(f"CREATE STREAM s.out AS {query}").query


def test_a_statement_says_target_options_sources_and_windows() -> None:
    statement = only(
        """
        -- CPU per core
        CREATE STREAM host.cpu WITH (key = core, time = `closed`, watermark = '10 seconds', trigger = '1 second') AS
        SELECT window.end AS closed, core, avg(percent) AS percent
        FROM STREAM host.metrics GROUP BY window(at, '10 seconds'), core;
        """
    )
    assert statement.target == StreamName("host", "cpu")
    assert statement.late_target == StreamName("host", "cpu_late")
    assert statement.options == StatementOptions(key="core", time="closed", watermark_us=10 * SECOND, trigger_us=SECOND)
    assert dict(statement.sources) == {"anabranch_1_stream_1": StreamName("host", "metrics")}
    assert statement.windows == (StatementWindow("at", 10 * SECOND, 10 * SECOND),)
    assert statement.line == 3


def test_only_the_names_of_relations_change_and_lines_stay_where_they_were() -> None:
    query = """SELECT 'FROM STREAM x.y; ', a /* FROM STREAM x.y */
FROM STREAM s.a -- the source
WHERE a > 1"""
    assert query_of(query) == query.replace("STREAM s.a", "anabranch_1_stream_1 AS `a`")


@pytest.mark.parametrize(
    ("query", "rewritten"),
    [
        ("SELECT * FROM STREAM s.a", "SELECT * FROM anabranch_1_stream_1 AS `a`"),
        ("SELECT * FROM stream s.a m", "SELECT * FROM anabranch_1_stream_1 m"),
        ("SELECT * FROM STREAM s.a AS m", "SELECT * FROM anabranch_1_stream_1 AS m"),
        ("SELECT * FROM STREAM s.a WHERE x", "SELECT * FROM anabranch_1_stream_1 AS `a` WHERE x"),
        ("SELECT * FROM STREAM `s`.`odd-name`", "SELECT * FROM anabranch_1_stream_1 AS `odd-name`"),
        ("SELECT * FROM STREAM window.end", "SELECT * FROM anabranch_1_stream_1 AS `end`"),
        (
            "SELECT * FROM STREAM s.a x LEFT JOIN STREAM s.b y ON x.k = y.k",
            "SELECT * FROM anabranch_1_stream_1 x LEFT JOIN anabranch_1_stream_2 y ON x.k = y.k",
        ),
        (
            "SELECT * FROM STREAM s.a x, STREAM s.b y",
            "SELECT * FROM anabranch_1_stream_1 x, anabranch_1_stream_2 y",
        ),
        (
            "SELECT * FROM STREAM s.a x JOIN STREAM s.a y USING (k)",
            "SELECT * FROM anabranch_1_stream_1 x JOIN anabranch_1_stream_1 y USING (k)",
        ),
        ("FROM STREAM s.a |> WHERE x", "FROM anabranch_1_stream_1 AS `a` |> WHERE x"),
        (
            "WITH c AS (SELECT * FROM STREAM s.a) SELECT * FROM c",
            "WITH c AS (SELECT * FROM anabranch_1_stream_1 AS `a`) SELECT * FROM c",
        ),
    ],
)
def test_streams_become_views_with_an_alias_that_keeps_their_columns_reachable(query: str, rewritten: str) -> None:
    assert query_of(query) == rewritten


def test_a_two_part_name_without_stream_is_a_table_that_can_be_put_back() -> None:
    statement = only("CREATE STREAM s.out AS SELECT * FROM STREAM s.a JOIN s.devices USING (k)")
    assert dict(statement.tables) == {"anabranch_1_table_1": StreamName("s", "devices")}
    assert statement.query.endswith("JOIN anabranch_1_table_1 AS `devices` USING (k)")
    assert statement.without_tables(["anabranch_1_table_1"]).endswith("JOIN `s`.`devices` AS `devices` USING (k)")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT extract(year FROM a.at) FROM STREAM s.a",
        "SELECT a.x IS DISTINCT FROM a.y FROM STREAM s.a",
        "SELECT * FROM STREAM s.a JOIN parquet.`/data/devices` d USING (k)",
        "SELECT stream.x, a FROM STREAM s.a `stream`",
        "SELECT * FROM STREAM s.a JOIN catalog.schema.devices USING (k)",
        "SELECT * FROM STREAM s.a JOIN devices USING (k)",
    ],
)
def test_what_is_no_two_part_relation_is_left_to_spark(query: str) -> None:
    statement = only(f"CREATE STREAM s.out AS {query}")
    assert not statement.tables
    assert len(statement.sources) == 1


def test_each_statement_has_its_own_views_because_watermarks_belong_to_statements() -> None:
    first, second = parse(
        "CREATE STREAM s.x WITH (watermark = '1 second') AS SELECT * FROM STREAM s.a; CREATE STREAM s.y AS SELECT * FROM STREAM s.a;"
    )
    assert set(first.sources).isdisjoint(second.sources)


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("window(at, '10 seconds')", StatementWindow("at", 10 * SECOND, 10 * SECOND)),
        ("window(m.at, '1 minute', '30 seconds')", StatementWindow("at", 60 * SECOND, 30 * SECOND)),
        (
            "WINDOW(at, '10 seconds', '10 seconds', '2 seconds')",
            StatementWindow("at", 10 * SECOND, 10 * SECOND, 2 * SECOND),
        ),
        ("session_window(at, '5 minutes')", StatementWindow("at", 300 * SECOND, 0)),
    ],
)
def test_windows_are_read_from_the_query(call: str, window: StatementWindow) -> None:
    statement = only(f"CREATE STREAM s.out AS SELECT count(*) FROM STREAM s.a m GROUP BY {call}")
    assert statement.windows == (window,)
    assert statement.windows[0].is_session == (window.slide_us == 0)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 second", SECOND),
        ("interval 2 hours", 7_200 * SECOND),
        ("1 minute 30 seconds", 90 * SECOND),
        ("1.5 seconds", 1_500_000),
        ("250 milliseconds", 250_000),
        ("5 MICROSECONDS", 5),
        ("1 week 1 day", 8 * 86_400 * SECOND),
        ("0 seconds", 0),
    ],
)
def test_intervals_are_counted_as_spark_counts_them(text: str, us: int) -> None:
    assert parse_interval_us(text) == us


@pytest.mark.parametrize(
    "text", ["", "10", "seconds", "1 month", "1 fortnight", "1.5 minutes", "0.0000001 seconds", "10 s s"]
)
def test_what_is_no_interval_of_fixed_length_is_refused(text: str) -> None:
    with pytest.raises(InvalidSql, match="not an interval"):
        parse_interval_us(text)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no statement"),
        ("-- nothing\n;", 1, "no statement"),
        ("SELECT 1", 1, "expected CREATE STREAM"),
        ("\nCREATE TABLE s.a AS SELECT 1", 2, "expected CREATE STREAM"),
        ("CREATE STREAM out AS SELECT 1", 1, "expected scope.name"),
        ("CREATE STREAM s.my-out AS SELECT 1", 1, "quote names"),
        ("CREATE STREAM s.`bad name` AS SELECT 1", 1, "not a stream name"),
        ("CREATE STREAM s.out SELECT 1", 1, "expected AS"),
        ("CREATE STREAM s.out AS", 1, "expected a query"),
        ("CREATE STREAM s.out AS\nSELECT 1", 2, "reads no stream"),
        ("CREATE STREAM s.out AS SELECT *\nFROM STREAM a", 2, "expected scope.name after FROM STREAM"),
        ("CREATE STREAM s.out AS SELECT * FROM STREAM s.a\nJOIN STREAM s.b-c", 2, "quote names"),
        ("CREATE STREAM s.out AS SELECT\n(1\nFROM STREAM s.a", 2, "never closed"),
        ("CREATE STREAM s.out AS SELECT 1\n) FROM STREAM s.a", 2, "unmatched"),
        ("CREATE STREAM s.out AS\nSELECT 'abc\nFROM STREAM s.a", 2, "not closed"),
        ("CREATE STREAM s.out AS\nSELECT a /* one */\n/* two", 3, "not closed"),
        ("CREATE STREAM s.out AS\nSELECT a -- /* one\n/* two\n", 3, "not closed"),
        ("/* one */ -- it's /*\n/* two", 2, "not closed"),
        ("CREATE STREAM s.out AS\nSELECT a /* one\n-- */ /* 'two\n", 3, "not closed"),
        ("CREATE STREAM s.out AS\nSELECT\n/*+ BROADCAST(a)\n* FROM STREAM s.a", 3, "not closed"),
        ("CREATE STREAM s.out WITH key = a AS SELECT 1", 1, r"expected \("),
        ("CREATE STREAM s.out WITH (key = a AS SELECT 1", 1, "expected , or"),
        (
            "CREATE STREAM s.out WITH (\nspeed = 1) AS SELECT 1",
            2,
            "unknown option 'speed'; there are: handler, idle, key",
        ),
        ("CREATE STREAM s.out WITH (key = a,\nkey = b) AS SELECT 1", 2, "given twice"),
        ("CREATE STREAM s.out WITH (key a) AS SELECT 1", 1, "expected = after option 'key'"),
        ("CREATE STREAM s.out WITH (key = ) AS SELECT 1", 1, "expected a name"),
        ("CREATE STREAM s.out WITH (\nwatermark = 'soon') AS SELECT 1", 2, "watermark: .*not an interval"),
        ("CREATE STREAM s.out WITH (trigger = '1 microsecond') AS SELECT 1", 1, "whole milliseconds"),
        ("CREATE STREAM s.out WITH (mode = update) AS SELECT 1", 1, "append or complete"),
        ("CREATE STREAM s.out WITH (segments = 0) AS SELECT 1", 1, "expected a number"),
        ("CREATE STREAM s.out WITH (late = perhaps) AS SELECT 1", 1, "true or false"),
        ("CREATE STREAM s.out AS SELECT 1 FROM STREAM s.a\nGROUP BY window(at)", 2, "write window"),
        ("CREATE STREAM s.out AS SELECT 1 FROM STREAM s.a\nGROUP BY window(at + 1, '1 second')", 2, "write window"),
        ("CREATE STREAM s.out AS SELECT 1 FROM STREAM s.a GROUP BY window(at, size)", 1, "constants"),
        ("CREATE STREAM s.out AS SELECT 1 FROM STREAM s.a GROUP BY window(at, '1 month')", 1, "not an interval"),
        ("CREATE STREAM s.out AS SELECT 1 FROM STREAM s.a GROUP BY window(at, '1 second', '2 seconds')", 1, "slide"),
        (
            "CREATE STREAM s.a AS SELECT 1 FROM STREAM s.b;\nCREATE STREAM s.a AS SELECT 1 FROM STREAM s.c",
            2,
            "line 1 too",
        ),
        (
            "CREATE STREAM s.a AS SELECT 1 FROM STREAM s.b;\nCREATE STREAM s.a_late AS SELECT 1 FROM STREAM s.c",
            2,
            "line 1",
        ),
        ("CREATE STREAM s.a AS SELECT 1 FROM STREAM s.a", 1, "s/a → s/a"),
        (
            "CREATE STREAM s.a AS SELECT 1 FROM STREAM s.b;\nCREATE STREAM s.b AS SELECT 1 FROM STREAM s.a",
            1,
            "s/a → s/b → s/a",
        ),
        ("CREATE STREAM s.a AS SELECT 1 FROM STREAM s.a_late", 1, "circle"),
        ("CREATE STREAM s.a\nINTO s.b AS SELECT 1 FROM STREAM s.c", 2, "WHEN"),
        ("CREATE STREAM s.a\nINTO s.b WHEN AS SELECT 1 FROM STREAM s.c", 2, "condition"),
        ("CREATE STREAM s.a INTO s.b WHEN x INTO s.b WHEN y AS SELECT 1 FROM STREAM s.c", 1, "twice"),
        ("CREATE STREAM s.a INTO LATE s.b INTO LATE s.d AS SELECT 1 FROM STREAM s.c", 1, "at most one INTO LATE"),
        ("CREATE STREAM s.a WITH (late = false) INTO LATE s.b AS SELECT 1 FROM STREAM s.c", 1, "late = false"),
        ("CREATE STREAM s.a WITH (mode = complete) INTO s.b WHEN x AS SELECT 1 FROM STREAM s.c", 1, "complete"),
        ("CREATE STREAM s.a INTO s.c WHEN x AS SELECT 1 FROM STREAM s.c", 1, "circle.*FEEDBACK WITHIN 10 HOPS"),
        ("CREATE STREAM s.a\nFEEDBACK INTO s.c WHEN x AS SELECT 1 FROM STREAM s.c", 2, "FEEDBACK WITHIN n HOPS"),
        ("CREATE STREAM s.a\nFEEDBACK WITHIN 0 HOPS INTO s.c WHEN x AS SELECT 1 FROM STREAM s.c", 2, "n from 1"),
        (
            "CREATE STREAM s.a\nFEEDBACK WITHIN 2 INTO s.c WHEN x AS SELECT 1 FROM STREAM s.c",
            2,
            "FEEDBACK WITHIN n HOPS",
        ),
        ("CREATE STREAM s.a FEEDBACK WITHIN 2 HOPS INTO s.c AS SELECT 1 FROM STREAM s.c", 1, "WHEN"),
        (
            "CREATE STREAM s.a FEEDBACK WITHIN 2 HOPS INTO s.c WHEN x\nINTO s.b WHEN y AS SELECT 1 FROM STREAM s.c",
            2,
            "write INTO before FEEDBACK",
        ),
        ("CREATE STREAM s.a FEEDBACK WITHIN 2 HOPS INTO s.a WHEN x AS SELECT 1 FROM STREAM s.c", 1, "twice"),
    ],
)
def test_a_mistake_is_answered_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(InvalidSql, match=message) as caught:
        parse(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")


def test_without_a_side_stream_its_name_is_free() -> None:
    statements = parse(
        """CREATE STREAM s.a WITH (late = false) AS SELECT 1 FROM STREAM s.b;
        CREATE STREAM s.a_late AS SELECT 1 FROM STREAM s.c"""
    )
    assert [statement.targets for statement in statements] == [
        (StreamName("s", "a"),),
        (StreamName("s", "a_late"), StreamName("s", "a_late_late")),
    ]


def test_side_outputs_are_found_with_their_conditions() -> None:
    sql = """CREATE STREAM s.a WITH (key = k)
        INTO s.b WHEN CASE WHEN cast(x AS int) > 1 THEN true END -- big ones
        COPY INTO s.`c` WHEN `into` = 'AS'
        INTO LATE s.d
        AS SELECT * FROM STREAM s.e"""
    (statement,) = parse(sql)
    assert [(str(side.target), side.condition, side.line, side.copies) for side in statement.sides] == [
        ("s/b", "CASE WHEN cast(x AS int) > 1 THEN true END", 2, False),
        ("s/c", "`into` = 'AS'", 3, True),
    ]
    assert list(map(str, statement.targets)) == ["s/a", "s/b", "s/c", "s/d"]
    # A stream may be called like the word, a column like another.
    sql = "CREATE STREAM s.a INTO s.b WHEN feedback > 1 FEEDBACK WITHIN :n HOPS INTO s.e WHEN x AS SELECT 1 FROM STREAM s.e"
    (statement,) = parse(f"DECLARE PARAMETER n INT DEFAULT 3; {sql}")
    assert [side.condition for side in statement.sides] == ["feedback > 1"]
    assert [(str(each.target), each.condition, each.hops_max) for each in statement.feedback] == [("s/e", "x", 3)]
    assert StreamName("s", "e") not in statement.targets
    sql = "CREATE STREAM s.a INTO s.b WHEN copy = 1 COPY INTO s.c WHEN copy COPY FEEDBACK WITHIN 2 HOPS INTO s.e WHEN e.copy > 1 AS SELECT 1 FROM STREAM s.e"
    (statement,) = parse(sql)
    assert [(side.condition, side.copies) for side in statement.sides] == [("copy = 1", False), ("copy", True)]
    assert [(each.condition, each.copies) for each in statement.feedback] == [("e.copy > 1", True)]
    assert str(parse("CREATE STREAM s.a INTO late.b WHEN x AS SELECT 1 FROM STREAM s.e")[0].sides[0].target) == "late/b"
