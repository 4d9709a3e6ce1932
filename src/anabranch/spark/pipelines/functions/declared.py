"""Functions as a file of statements declares them, and their calls. Pure: no Spark, nothing of their code runs.

    CREATE FUNCTION score(celsius DOUBLE, humidity DOUBLE) RETURNS DOUBLE AS PYTHON 'scoring.model:score';
    CREATE FUNCTION doubled(n BIGINT) RETURNS BIGINT AS ARROW 'scoring.model:doubled';
    CREATE FUNCTION fahrenheit(celsius DOUBLE) RETURNS DOUBLE AS WASM 'heat:fahrenheit';
    CREATE FUNCTION alerts(device STRING, celsius DOUBLE) RETURNS TABLE (device STRING, text STRING) AS PYTHON 'alerts:of';

Spark knows a function by a name of its own, which has a digest of its declaration and its code in it. So a statement that
calls a function with other code is another statement, for everything that compares statements."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from anabranch import limits
from anabranch.catalog.state.query_version import QueryFile
from anabranch.errors import InvalidSql

__all__ = [
    "DeclaredFunction",
    "Language",
    "declared_functions",
    "is_function",
    "wasm_signature",
    "with_spark_names",
    "without_spark_names",
]

Language: TypeAlias = Literal["PYTHON", "ARROW", "WASM"]
"""`PYTHON`: columns as pandas Series; `ARROW`: as Arrow arrays; `WASM`: the function of a WebAssembly module."""

_EXPECTED: Final = "expected CREATE FUNCTION name(column TYPE, …) RETURNS TYPE AS PYTHON|ARROW|WASM 'module:function'"
_LANGUAGES: Final[Mapping[str, Language]] = {"PYTHON": "PYTHON", "ARROW": "ARROW", "WASM": "WASM"}
# The types of SQL that modules can take and return, by their names there.
_WASM_TYPES: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INT": "int32",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "FLOAT": "float32",
    "DOUBLE": "double",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
    "STRING": "string",
    "BINARY": "binary",
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z", re.ASCII)
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]*\Z")
_PREFIX: Final = "anabranch_fn_"
_SPARK_NAME: Final = re.compile(rf"\b{_PREFIX}[0-9a-f]{{12}}_")
# Calls of these are read before Spark sees them.
_OWN: Final = frozenset({"window", "session_window", "count_window", "bloom_sketch_agg", "drift"})


@dataclass(frozen=True, slots=True)
class DeclaredFunction:
    """A function as declared on `line`. `arguments` have names and SQL types. It returns a value of the SQL type `result`
    for each row, or a table with `columns`, which have names and types too: then it handles micro-batches as a whole.
    `spark_name` is what Spark knows it by, and `archive` the name of the unpacked code, if it was deployed with Python code."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    result: str | None
    columns: tuple[tuple[str, str], ...]
    language: Language
    module: str
    function: str
    line: int
    spark_name: str
    archive: str | None

    @property
    def of_batches(self) -> bool:
        """True if it handles micro-batches; else it is called in SQL."""
        return self.result is None


def is_function(tokens: Sequence[Token]) -> bool:
    """True for the tokens of a CREATE FUNCTION."""
    return [token.text.upper() for token in tokens[:2]] == ["CREATE", "FUNCTION"]


def declared_functions(
    text: str, statements: Sequence[Sequence[Token]], files: Sequence[QueryFile] = ()
) -> dict[str, DeclaredFunction]:
    """The functions of a file by their names in lower case. `statements` are the tokens of its statements, `files` those
    that it was deployed with. Raises InvalidSql."""
    found: dict[str, DeclaredFunction] = {}
    for tokens in filter(is_function, statements):
        function = _Declaration(text, tokens, files).parse()
        if found.setdefault(function.name.lower(), function) is not function:
            raise InvalidSql(f"function '{function.name}' is declared twice", line=function.line)
    return found


def with_spark_names(text: str, tokens: Sequence[Token], functions: Mapping[str, DeclaredFunction]) -> str:
    """The text, of which these are the tokens, with the functions called by Spark's names. Lines stay where they are.
    Raises InvalidSql for a call of one that handles batches."""
    parts, position = [], 0
    for index in _calls(tokens, functions):
        token = tokens[index]
        function = functions[token.text.lower()]
        if function.of_batches:
            raise InvalidSql(
                f"'{function.name}' returns a table: a statement has it as its handler, WITH (handler = {function.name})",
                line=token.line,
            )
        parts += [text[position : token.start], function.spark_name]
        position = token.end + 1
    return "".join([*parts, text[position:]])


def wasm_signature(function: DeclaredFunction) -> str:
    """The signature of a module's function; see `anabranch.wasm.signature`. Raises InvalidSql for types that modules don't
    know."""
    kinds = [*(kind for _, kind in function.arguments), str(function.result)]
    if bad := next((kind for kind in kinds if kind.upper() not in _WASM_TYPES), None):
        raise InvalidSql(
            f"a WebAssembly module can't take or return {bad}; expected {', '.join(_WASM_TYPES)}", line=function.line
        )
    names = [_WASM_TYPES[kind.upper()] for kind in kinds]
    takes = ", ".join(f"{name} {kind}" for (name, _), kind in zip(function.arguments, names, strict=False))
    return f"{function.function}({takes}) -> {names[-1]}"


def without_spark_names(text: str) -> str:
    """A message about SQL, with the functions by the names in the file."""
    return _SPARK_NAME.sub("", text)


def _calls(tokens: Sequence[Token], functions: Mapping[str, DeclaredFunction]) -> Iterator[int]:
    declaring = False
    for index, token in enumerate(tokens[:-1]):
        before = tokens[index - 1] if index else None
        if before is None or before.token_type is TokenType.SEMICOLON:
            declaring = is_function(tokens[index : index + 2])
        if declaring or token.token_type is TokenType.STRING or token.text.lower() not in functions:
            continue
        dotted = before is not None and before.token_type is TokenType.DOT
        if tokens[index + 1].token_type is TokenType.L_PAREN and not dotted:
            yield index


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


class _Declaration:
    """Reads the tokens of one declaration from left to right."""

    def __init__(self, text: str, tokens: Sequence[Token], files: Sequence[QueryFile]) -> None:
        self._text = text
        self._tokens = tokens
        self._files = files
        self._at = 2

    def parse(self) -> DeclaredFunction:
        line, name = self._tokens[0].line, self._name("the name of a function")
        if name.lower() in _OWN or name.upper() in Spark.Parser.FUNCTIONS:
            self._fail(f"'{name}' is a function of SQL already: choose another name")
        self._need("(")
        arguments = self._columns("arguments")
        self._need("RETURNS")
        result: str | None = None
        columns: tuple[tuple[str, str], ...] = ()
        if self._peek() == "TABLE":
            self._at += 1
            self._need("(")
            columns = self._columns("columns")
        else:
            result = self._type(("AS",))
        self._need("AS")
        language = _LANGUAGES.get(self._peek())
        if language is None or (columns and language == "WASM"):
            self._fail(_EXPECTED if language is None else "a function that returns a table is PYTHON or ARROW")
        self._at += 1
        module, function = self._target(language)
        if self._at < len(self._tokens):
            self._fail("expected ; after the declaration of a function")
        code = self._code(language, module)
        parts = [name.lower(), arguments, result, columns, language, module, function, code]
        spark_name = f"{_PREFIX}{_digest(parts)}_{name}"
        is_python = language != "WASM" and any(file.kind == "wheel" for file in self._files)
        archive = f"code-{_digest(code)}" if is_python else None
        return DeclaredFunction(name, arguments, result, columns, language, module, function, line, spark_name, archive)

    def _code(self, language: Language, module: str) -> list[tuple[str, str]]:
        """The files that decide what it returns, with their digests."""
        if language == "WASM":
            return [(file.name, file.digest) for file in self._files if file.name == f"{module}.wasm"]
        return sorted((file.name, file.digest) for file in self._files if file.kind != "wasm")

    def _peek(self) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].token_type is TokenType.STRING:
            return ""
        return str(self._tokens[self._at].text).upper()

    def _need(self, word: str) -> None:
        if self._peek() != word:
            self._fail(f"expected {word}: {_EXPECTED}")
        self._at += 1

    def _fail(self, message: str) -> NoReturn:
        raise InvalidSql(message, line=self._tokens[min(self._at, len(self._tokens) - 1)].line)

    def _name(self, what: str) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.token_type is TokenType.STRING or not _NAME.match(token.text):
            self._fail(f"expected {what} as a plain word: {_EXPECTED}")
        self._at += 1
        return str(token.text)

    def _columns(self, what: str) -> tuple[tuple[str, str], ...]:
        """Names with their types up to the closing parenthesis, at least one."""
        found: list[tuple[str, str]] = []
        while True:
            name = self._name(f"the names of {what}, each before its type,")
            found.append((name, self._type((",", ")"))))
            if self._peek() == ")":
                self._at += 1
                break
            self._need(",")
        if len({name.lower() for name, _ in found}) < len(found):
            self._fail(f"two of the {what} have the same name")
        if len(found) > limits.COLUMNS_MAX:
            self._fail(f"there are {len(found)} {what}, over the limit of {limits.COLUMNS_MAX}")
        return tuple(found)

    def _type(self, ends: Sequence[str]) -> str:
        """The SQL type up to one of these words outside of its own parentheses."""
        begin, depth = self._at, 0
        while self._at < len(self._tokens) and (depth > 0 or self._peek() not in ends):
            word = self._peek()
            depth += word.count("(") + word.count("<") - word.count(")") - word.count(">")
            self._at += 1
        given = self._text[self._tokens[begin].start : self._tokens[self._at - 1].end + 1] if self._at > begin else ""
        try:
            kind = exp.DataType.build(given, dialect="spark") if given else None
        except (SqlglotError, ValueError):
            kind = None
        if kind is None or kind.is_type(exp.DataType.Type.USERDEFINED, exp.DataType.Type.UNKNOWN):
            self._at = begin
            self._fail(f"expected a type of SQL, such as DOUBLE, got '{given:.100}'")
        return " ".join(given.split())

    def _target(self, language: Language) -> tuple[str, str]:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        text = token.text if token is not None and token.token_type is TokenType.STRING else ""
        module, colon, function = text.partition(":")
        if not (colon and (_FILE if language == "WASM" else _MODULE).match(module) and _NAME.match(function)):
            self._fail(f"expected 'module:function' after AS {language}: {_EXPECTED}")
        self._at += 1
        return module, function
