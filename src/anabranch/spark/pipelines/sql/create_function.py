"""The statement CREATE FUNCTION.

    CREATE FUNCTION score(celsius DOUBLE, humidity DOUBLE) RETURNS DOUBLE AS PYTHON 'scoring.model:score';
    CREATE FUNCTION doubled(n BIGINT) RETURNS BIGINT AS ARROW 'scoring.model:doubled';
    CREATE FUNCTION fahrenheit(celsius DOUBLE) RETURNS DOUBLE AS WASM 'heat:fahrenheit';
    CREATE FUNCTION alerts(device STRING, celsius DOUBLE) RETURNS TABLE (device STRING, text STRING) AS PYTHON 'alerts:of';

The last is for a statement's option `handler`; the others are called in queries.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from anabranch import limits
from anabranch.catalog.state.query_version import QueryFile
from anabranch.errors import InvalidSql
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.declared_functions.declared import SPARK_PREFIX, DeclaredFunction, Language
from anabranch.spark.pipelines.sql_tokens import word_of

__all__ = ["declared_functions", "is_function"]

_EXPECTED: Final = "expected CREATE FUNCTION name(column TYPE, …) RETURNS TYPE | TABLE (column TYPE, …) AS PYTHON|ARROW|WASM 'module:function'"
_LANGUAGES: Final[Mapping[str, Language]] = {"PYTHON": "PYTHON", "ARROW": "ARROW", "WASM": "WASM"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z", re.ASCII)
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]*\Z")
# Calls of these functions are translated before Spark gets the query.
_OWN: Final = frozenset({"window", "session_window", "count_window", "bloom_sketch_agg", "drift"})


def is_function(tokens: Sequence[Token]) -> bool:
    """True for the tokens of a CREATE FUNCTION."""
    return list(map(word_of, tokens[:2])) == ["CREATE", "FUNCTION"]


def declared_functions(
    text: str, statements: Sequence[Sequence[Token]], files: Sequence[QueryFile] = ()
) -> dict[str, DeclaredFunction]:
    """The functions of a file by their names in lower case. `statements` are the tokens of its statements, `files` those
    that it was deployed with. Raises InvalidSql."""
    found: dict[str, DeclaredFunction] = {}
    for tokens in filter(is_function, statements):
        function = _created_function(Cursor(text, tokens, at=2), files)
        if found.setdefault(function.name.lower(), function) is not function:
            raise InvalidSql(f"function '{function.name}' is declared twice", line=function.line)
    return found


def _created_function(cursor: Cursor, files: Sequence[QueryFile]) -> DeclaredFunction:
    line, name = cursor.tokens[0].line, _name(cursor, "the name of a function")
    if name.lower() in _OWN or name.upper() in Spark.Parser.FUNCTIONS:
        cursor.fail(f"'{name}' is a function of SQL already: choose another name")
    _need(cursor, "(")
    arguments = _columns(cursor, "arguments")
    _need(cursor, "RETURNS")
    result: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    if cursor.take("TABLE"):
        _need(cursor, "(")
        columns = _columns(cursor, "columns")
    else:
        result = _type(cursor, ("AS",))
    _need(cursor, "AS")
    language = _LANGUAGES.get(cursor.word())
    if language is None:
        cursor.fail(_EXPECTED)
    cursor.at += 1
    module, function = _target(cursor, language)
    if cursor.peek() is not None:
        cursor.fail("expected ; after the declaration of a function")
    code = _code(files, language, module)
    parts = [name.lower(), arguments, result, columns, language, module, function, code]
    spark_name = f"{SPARK_PREFIX}{_digest(parts)}_{name}"
    is_python = language != "WASM" and any(file.kind == "wheel" for file in files)
    archive = f"code-{_digest(code)}" if is_python else None
    return DeclaredFunction(name, arguments, result, columns, language, module, function, line, spark_name, archive)


def _code(files: Sequence[QueryFile], language: Language, module: str) -> list[tuple[str, str]]:
    """The files that decide what a function returns, with their digests."""
    if language == "WASM":
        return [(file.name, file.digest) for file in files if file.name == f"{module}.wasm"]
    return sorted((file.name, file.digest) for file in files if file.kind != "wasm")


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _need(cursor: Cursor, word: str) -> None:
    if not cursor.take(word):
        cursor.fail(f"expected {word}: {_EXPECTED}")


def _name(cursor: Cursor, what: str) -> str:
    token = cursor.peek()
    if token is None or token.token_type is TokenType.STRING or not _NAME.match(token.text):
        cursor.fail(f"expected {what} as a plain word: {_EXPECTED}")
    cursor.at += 1
    return str(token.text)


def _columns(cursor: Cursor, what: str) -> tuple[tuple[str, str], ...]:
    """Names with their types up to the closing parenthesis, at least one."""
    found: list[tuple[str, str]] = []
    while True:
        name = _name(cursor, f"the names of {what}, each before its type,")
        found.append((name, _type(cursor, (",", ")"))))
        if cursor.take(")"):
            break
        _need(cursor, ",")
    if len({name.lower() for name, _ in found}) < len(found):
        cursor.fail(f"two of the {what} have the same name")
    if len(found) > limits.COLUMNS_MAX:
        cursor.fail(f"there are {len(found)} {what}, over the limit of {limits.COLUMNS_MAX}")
    return tuple(found)


def _type(cursor: Cursor, ends: Sequence[str]) -> str:
    """The SQL type up to one of these words outside of its own parentheses."""
    begin, depth = cursor.at, 0
    while cursor.peek() is not None and (depth > 0 or cursor.word() not in ends):
        word = cursor.word()
        depth += word.count("(") + word.count("<") - word.count(")") - word.count(">")
        cursor.at += 1
    given = cursor.text_of(begin, cursor.at)
    try:
        kind = exp.DataType.build(given, dialect="spark") if given else None
    except (SqlglotError, ValueError):
        kind = None
    if kind is None or kind.is_type(exp.DataType.Type.USERDEFINED, exp.DataType.Type.UNKNOWN):
        cursor.at = begin
        cursor.fail(f"expected a type of SQL, such as DOUBLE, got '{given:.100}'")
    return " ".join(given.split())


def _target(cursor: Cursor, language: Language) -> tuple[str, str]:
    token = cursor.peek()
    text = token.text if token is not None and token.token_type is TokenType.STRING else ""
    module, colon, function = text.partition(":")
    if not (colon and (_FILE if language == "WASM" else _MODULE).match(module) and _NAME.match(function)):
        cursor.fail(f"expected 'module:function' after AS {language}: {_EXPECTED}")
    cursor.at += 1
    return module, function
