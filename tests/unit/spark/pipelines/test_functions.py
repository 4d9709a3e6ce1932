"""Functions that a file declares: how they are read, found in statements, and checked against their code."""

from __future__ import annotations

import pytest

from anabranch.deployments.files import check_files
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.spark.pipelines.declared_functions.declared import check_code
from anabranch.spark.pipelines.plan import Step, functions_of, plan
from anabranch.spark.pipelines.sql.parse import parse
from anabranch.spark.queries.upgrade import compare, is_stateless
from tests.wasm_modules import heat, over
from tests.wheels import wheel

WHEEL = "scoring-1.0-py3-none-any.whl"
FILES = {WHEEL: wheel({"scoring/model.py": "def score(x): return x"}), "model.json": b"{}"}
SCORE = "CREATE FUNCTION score(celsius DOUBLE) RETURNS DOUBLE AS PYTHON 'scoring.model:score';\n"
USE = "CREATE STREAM out.a AS SELECT device, score(celsius) AS s FROM STREAM iot.sensors"
MEAN = "CREATE STREAM out.a AS SELECT avg(score(celsius)) AS s FROM STREAM iot.sensors GROUP BY window(at, '1 minute')"
ALERTS = "CREATE FUNCTION alerts(device STRING) RETURNS TABLE (device STRING, text STRING) AS ARROW 'alerts:of';\n"
HANDLED = "CREATE STREAM out.a WITH (handler = Alerts) AS SELECT device FROM STREAM iot.sensors"


def steps(text: str, files: dict[str, bytes] | None = None) -> tuple[Step, ...]:
    return plan(text, {}, check_files(FILES if files is None else files))


def check(text: str, files: dict[str, bytes]) -> None:
    check_code(functions_of(steps(text, files)), files)


def fingerprint(text: str, files: dict[str, bytes] | None = None) -> str:
    return steps(text, files)[0].output.fingerprint


def test_a_declaration_is_read() -> None:
    text = (
        "create function F_1 ( a array<struct<x: decimal(10, 2), y: map<string, int>>>, `b` timestamp )\n"
        " returns array<double> as arrow 'pkg.mod:fn';\n"
        "CREATE STREAM out.a AS SELECT f_1(x, at) AS s FROM STREAM iot.sensors"
    )
    (function,) = parse(text)[0].functions
    assert (function.name, function.language, function.module, function.function) == ("F_1", "ARROW", "pkg.mod", "fn")
    assert function.arguments == (("a", "array<struct<x: decimal(10, 2), y: map<string, int>>>"), ("b", "timestamp"))
    assert (function.result, function.columns, function.line) == ("array<double>", (), 1)


def test_calls_get_spark_s_names_and_lines_stay() -> None:
    text = SCORE + (
        "CREATE STREAM out.a\nINTO out.b WHEN Score(s) > 1 AS\nSELECT score( celsius ) AS s, 'score(1)' AS score, x.score(2) AS t,\n"
        "`score`(celsius) AS u -- score(3)\nFROM STREAM iot.sensors"
    )
    (statement,) = parse(text)
    (function,) = statement.functions
    name = function.spark_name
    assert statement.query.splitlines() == [
        f"SELECT {name}( celsius ) AS s, 'score(1)' AS score, x.score(2) AS t,",
        f"{name}(celsius) AS u -- score(3)",
        "FROM anabranch_1_stream_1 AS `sensors`",
    ]
    assert statement.sides[0].condition == f"{name}(s) > 1"
    assert (statement.line, statement.query_line) == (2, 4)


def test_a_statement_has_the_functions_that_it_uses() -> None:
    other = "; CREATE STREAM out.b AS SELECT device FROM STREAM iot.sensors;" + HANDLED.replace("out.a", "out.c")
    found = parse(SCORE + ALERTS + USE + other)
    assert [[each.name for each in statement.functions] for statement in found] == [["score"], [], ["alerts"]]
    assert found[2].handler is found[2].functions[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE FUNCTION", "line 1: expected the name of a function"),
        ("CREATE FUNCTION f", r"line 1: expected \("),
        ("CREATE FUNCTION f()", "line 1: expected the names of arguments"),
        ("CREATE FUNCTION f(a)", "line 1: expected a type of SQL, such as DOUBLE, got ''"),
        ("CREATE FUNCTION f(a nothing)", "line 1: expected a type of SQL, such as DOUBLE, got 'nothing'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT; DROP TABLE x AS", "line 1: expected AS"),
        (
            "CREATE FUNCTION f(a INT, A INT) RETURNS INT AS PYTHON 'a:b'",
            "line 1: two of the arguments have the same name",
        ),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS JAVA 'a:b'", "line 1: expected CREATE FUNCTION"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS PYTHON a:b", "line 1: expected 'module:function'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS PYTHON 'a'", "line 1: expected 'module:function'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS PYTHON '../a:b'", "line 1: expected 'module:function'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS PYTHON 'a.:b'", "line 1: expected 'module:function'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS PYTHON 'a:b.c'", "line 1: expected 'module:function'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS WASM '../a:b'", "line 1: expected 'module:function'"),
        ("CREATE FUNCTION f(a INT) RETURNS INT AS PYTHON 'a:b' x", "line 1: expected ; after the declaration"),
        ("CREATE FUNCTION sum(a INT) RETURNS INT AS PYTHON 'a:b'", "line 1: 'sum' is a function of SQL already"),
        ("CREATE FUNCTION window(a INT) RETURNS INT AS PYTHON 'a:b'", "line 1: 'window' is a function of SQL already"),
        (SCORE + SCORE.strip("\n;"), "line 2: function 'score' is declared twice"),
    ],
)
def test_declarations_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message):
        parse(text + ";" + USE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ALERTS + "CREATE STREAM out.a AS SELECT alerts(device) FROM STREAM iot.sensors",
            "line 2: 'alerts' returns a table",
        ),
        (
            SCORE + HANDLED.replace("Alerts", "score"),
            "line 2: handler = score: expected a function that the file declares",
        ),
        (HANDLED, "line 1: handler = Alerts: expected a function that the file declares"),
        (
            ALERTS + HANDLED.replace("Alerts", "alerts, mode = complete"),
            "line 2: a statement with a handler can't have mode",
        ),
        (
            ALERTS
            + HANDLED.replace("SELECT device", "SELECT device, count(*) AS n")
            + " GROUP BY device, count_window(10)",
            "line 2: a statement with count_window, EMIT or DETECT can't have a handler",
        ),
    ],
)
def test_uses_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message):
        parse(text)


def test_other_code_is_another_statement() -> None:
    first = fingerprint(SCORE + USE)
    assert fingerprint("-- the same\n" + SCORE.replace("celsius DOUBLE", "celsius\n  DOUBLE") + USE) == first
    assert fingerprint(SCORE + USE, {**FILES, "heat.wasm": heat()}) == first
    assert fingerprint(SCORE + USE, {**FILES, "model.json": b"[]"}) != first
    assert fingerprint(SCORE + USE, {**FILES, WHEEL: wheel({"scoring/model.py": ""})}) != first
    assert fingerprint(SCORE.replace("model:score", "model:other") + USE) != first
    unused = "CREATE STREAM out.a AS SELECT device FROM STREAM iot.sensors"
    assert fingerprint(SCORE + unused) == fingerprint(unused, {})


def test_other_code_of_a_handler_is_another_statement() -> None:
    wasm = "CREATE FUNCTION echo(device STRING) RETURNS TABLE (device STRING) AS WASM 'many:echo';"
    of_wasm = [
        fingerprint(wasm + HANDLED.replace("Alerts", "echo"), {"many.wasm": code}) for code in (over(), over(), heat())
    ]
    assert of_wasm[0] == of_wasm[1] != of_wasm[2]
    first = fingerprint(ALERTS + HANDLED)
    assert fingerprint(ALERTS + HANDLED.replace("Alerts", "alerts")) == first
    assert fingerprint(ALERTS + HANDLED, {**FILES, "model.json": b"[]"}) != first


@pytest.mark.parametrize(
    ("text", "verdict"), [(SCORE + USE, "keeps state"), (SCORE + MEAN, "restarts"), (ALERTS + HANDLED, "keeps state")]
)
def test_an_upgrade_to_other_code(text: str, verdict: str) -> None:
    before, after = steps(text), steps(text, {**FILES, "model.json": b"[]"})
    assert [each.verdict for each in compare(before, before)] == ["keeps state"]
    assert [each.verdict for each in compare(before, after)] == [verdict]


def test_a_function_that_is_declared_is_no_aggregate() -> None:
    assert is_stateless(parse(SCORE + USE)[0])
    assert not is_stateless(parse(USE)[0])


def test_code_that_is_there() -> None:
    check(SCORE + USE, FILES)
    heated = "CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE AS WASM 'heat:score';" + USE.replace("score(", "f(")
    check(heated, {"heat.wasm": heat()})
    handler = "CREATE FUNCTION echo(device STRING) RETURNS TABLE (device STRING) AS WASM 'many:echo';"
    check(handler + HANDLED.replace("Alerts", "echo"), {"many.wasm": over()})
    package = {"p-1-py3-none-any.whl": wheel({"scoring/model/__init__.py": ""}, name="p")}
    check(SCORE + USE, package)


@pytest.mark.parametrize(
    ("text", "files", "message"),
    [
        (SCORE + USE, {}, "line 1: there is no module 'scoring.model' for 'score': .* has: none"),
        (SCORE.replace("scoring.model", "os") + USE, FILES, f"there is no module 'os' for 'score': .* has: {WHEEL}"),
        (
            SCORE.replace("PYTHON 'scoring.", "WASM '") + USE,
            FILES,
            "there is no module 'model.wasm' for 'score'; .* has: none",
        ),
        (
            SCORE.replace("PYTHON 'scoring.model:score'", "WASM 'heat:scored'") + USE,
            {"heat.wasm": heat()},
            "line 1: heat.wasm: the module does not export the function 'scored'",
        ),
        (
            SCORE.replace("PYTHON 'scoring.model", "WASM 'heat").replace("RETURNS DOUBLE", "RETURNS ARRAY<DOUBLE>")
            + USE,
            {"heat.wasm": heat()},
            "line 1: .*can't take or return ARRAY<DOUBLE>",
        ),
        (
            ALERTS.replace("ARROW 'alerts:of", "WASM 'many:of") + HANDLED,
            {"many.wasm": over()},
            "line 1: many.wasm: the module does not export the function 'of'",
        ),
        (
            ALERTS.replace("ARROW 'alerts:of", "WASM 'many:echo").replace("text STRING", "text DECIMAL(5, 2)")
            + HANDLED,
            {"many.wasm": over()},
            r"line 1: .*can't take or return DECIMAL\(5, 2\)",
        ),
    ],
)
def test_code_that_is_not_there(text: str, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(InvalidSql, match=message):
        check(text, files)


def test_a_module_that_is_none() -> None:
    text = SCORE.replace("PYTHON 'scoring.model", "WASM 'heat") + USE
    with pytest.raises((InvalidSql, InvalidArgument), match="not a valid WebAssembly module"):
        check(text, {"heat.wasm": b"\0asm" + bytes(20)})
