"""Parses pipeline SQL into statements. Pure: no Spark, no store, no files.

    CREATE STREAM scope.out WITH (key = device, time = closed, watermark = '10 seconds', trigger = '1 second') AS
    SELECT window.end AS closed, device, count(*) AS events
    FROM STREAM scope.source JOIN scope.devices USING (device)
    GROUP BY window(at, '10 seconds'), device;

The query itself is Spark SQL. Only the names of streams are replaced by those of temporary views, in place, so the line
numbers in Spark's messages stay correct. Spark checks everything else. sqlglot's tokenizer finds strings, comments and
quoted names. Its parser is not used, because it does not support `GROUP BY window(…)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from anabranch.catalog.state.query_version import QueryFile
from anabranch.errors import InvalidName, InvalidSql
from anabranch.errors.optional import optional
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.bloom_filters import with_bloom_filters
from anabranch.spark.pipelines.estimated import Replacement, estimates
from anabranch.spark.pipelines.functions.declared import (
    DeclaredFunction,
    declared_functions,
    is_function,
    with_spark_names,
)
from anabranch.spark.pipelines.parameters import TYPES, Parameter, bind, with_names
from anabranch.spark.pipelines.side_outputs import HOPS_MAX, SIDE_OUTPUTS_MAX, SideOutput
from anabranch.spark.pipelines.statement import (
    OPTIONS,
    VERSIONS_VIEW,
    Statement,
    StatementOptions,
    parse_interval_us,
    to_options,
)
from anabranch.spark.pipelines.windows.clauses import Relation, windowed_query
from anabranch.spark.pipelines.windows.drift_clauses import drift_query
from anabranch.spark.pipelines.windows.emit_clauses import value_at
from anabranch.spark.pipelines.windows.spans import StatementWindow

with optional("a pipeline", "spark"):
    from sqlglot import Token, TokenType
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import TokenError

__all__ = ["declarations", "parse"]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LITERAL_TOKENS_MAX = 8  # of an interval: `1 day 2 hours 3 minutes 4 seconds`
# Spark itself reads `format.`path``, so these first parts are never scopes.
_FILE_FORMATS = frozenset({"avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"})


def parse(
    text: str, parameters: Mapping[str, str] | None = None, files: Sequence[QueryFile] = ()
) -> tuple[Statement, ...]:
    """Parse a file of `;`-separated CREATE STREAM statements, in file order. `parameters` are values, as text, of those
    that it declares (`anabranch.spark.pipelines.parameters`). `files` are those with the code of its functions
    (`anabranch.spark.pipelines.functions`).

    Raises InvalidSql with the line for anything but well-formed statements, for two statements with the same target,
    and for statements that feed each other in a cycle.
    """
    statements: list[Statement] = []
    tokens = _tokenize(text)
    declared = {each.name: each for each in _declared(text, _split(tokens))}
    values = bind(declared, parameters or {})
    text = with_names(text, tokens, declared, values)
    text = with_bloom_filters(text, _tokenize(text))
    tokens = _tokenize(text)
    functions = declared_functions(text, _split(tokens), files)
    text = with_spark_names(text, tokens, functions)
    queries = [each for each in _split(_tokenize(text)) if not _is_declaration(each) and not is_function(each)]
    for number, tokens in enumerate(queries, start=1):
        statements.append(_StatementParser(text, tokens, number, values, functions).parse())
    if not statements:
        raise InvalidSql("no statement found; expected CREATE STREAM scope.name AS SELECT …", line=1)
    _refuse_duplicates(statements)
    _refuse_circles(statements)
    return tuple(statements)


def declarations(text: str) -> tuple[Parameter, ...]:
    """The parameters that a file declares. Raises InvalidSql."""
    return _declared(text, _split(_tokenize(text)))


def _declared(text: str, pieces: Sequence[list[Token]]) -> tuple[Parameter, ...]:
    declared: dict[str, Parameter] = {}
    for tokens in filter(_is_declaration, pieces):
        parameter = _StatementParser(text, tokens, 0, {}, {}).declaration()
        if parameter.name in declared:
            raise InvalidSql(f"parameter '{parameter.name}' is declared twice", line=parameter.line)
        declared[parameter.name] = parameter
    return tuple(declared.values())


def _tokenize(text: str) -> list[Token]:
    try:
        return list(Spark().tokenize(text))
    except TokenError as exc:
        raise InvalidSql("a quote or comment is not closed", line=_unclosed_line(text)) from exc


def _unclosed_line(text: str) -> int | None:
    """The line where the unclosed quote begins: the one after the longest prefix of lines that can be tokenized."""
    lines = text.splitlines(keepends=True)
    readable = 0
    for count in range(1, len(lines) + 1):
        try:
            Spark().tokenize("".join(lines[:count]))
            readable = count
        except TokenError:
            continue
    return readable + 1 if readable < len(lines) else None


def _split(tokens: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _is_declaration(tokens: Sequence[Token]) -> bool:
    return [token.text.upper() for token in tokens[:2]] == ["DECLARE", "PARAMETER"]


def _refuse_duplicates(statements: Sequence[Statement]) -> None:
    lines: dict[StreamName, int] = {}
    for statement in statements:
        for name in statement.targets:
            if name in lines:
                raise InvalidSql(f"'{name}' is written by the statement on line {lines[name]} too", line=statement.line)
            lines[name] = statement.line


def _refuse_circles(statements: Sequence[Statement]) -> None:
    writers = {target: statement for statement in statements for target in statement.targets}
    done: set[StreamName] = set()

    def visit(statement: Statement, path: tuple[StreamName, ...]) -> None:
        if statement.target in path:
            circle = " → ".join(str(name) for name in (*path[path.index(statement.target) :], statement.target))
            raise InvalidSql(
                f"statements feed each other in a circle: {circle}; have one of them lead back with: FEEDBACK WITHIN 10 HOPS "
                "INTO scope.name WHEN condition",
                line=statement.line,
            )
        if statement.target in done:
            return
        for source in statement.sources.values():
            if source in writers:
                visit(writers[source], (*path, statement.target))
        done.add(statement.target)

    for statement in statements:
        visit(statement, ())


class _StatementParser:
    """Reads the tokens of one statement from left to right."""

    def __init__(
        self,
        text: str,
        tokens: list[Token],
        number: int,
        values: Mapping[str, Any],
        functions: Mapping[str, DeclaredFunction],
    ) -> None:
        self._text = text
        self._values = values
        self._functions = functions
        self._tokens = tokens
        self._number = number
        self._at = 0

    def parse(self) -> Statement:
        line = self._tokens[0].line
        if not (self._take("CREATE") and self._take("STREAM")):
            self._fail("expected CREATE STREAM scope.name [WITH (…)] [INTO …] AS SELECT …", at=0)
        target = self._stream_name("CREATE STREAM")
        options = self._options() if self._take("WITH") else StatementOptions()
        after_options = self._at
        sides, feedback, late_into = self._side_outputs(options)
        if not self._take("AS"):
            self._fail(f"expected AS and a query after CREATE STREAM {target.scope}.{target.name}")
        named = [target, *(side.target for side in (*sides, *feedback)), *([late_into] if late_into else [])]
        for name in named:
            if named.count(name) > 1:
                self._fail(f"the statement writes to '{name}' twice", at=0)
        if self._peek() is None:
            self._fail("expected a query after AS", at=self._at - 1)
        begin = self._at
        relations, sources, tables = self._relations()
        windows = self._windows(begin)
        if not sources:
            self._fail(f"the query reads no stream; name one with FROM STREAM scope.name, to feed {target}", at=begin)
        estimated = () if options.shed is None else estimates(self._text, self._tokens, begin)
        if estimated and len(relations) != 1:
            self._fail("a statement with shed reads one stream: join its results in a second one", at=begin)
        windowed = drift_query(self._text, self._tokens, begin, relations, self._values) or windowed_query(
            self._text, self._tokens, begin, relations, self._values, windows, _interval_us
        )
        if options.start_query is not None and (windowed is None or not windowed.detects_drift):
            self._fail("start_query goes with DETECT DRIFT", at=0)
        handler = self._handler(options)
        if handler is not None and windowed is not None:
            self._fail("a statement with such windows has no handler: let a second one handle its results", at=0)
        if windowed is not None and (sides or feedback):
            self._fail("a statement with such windows has no side outputs: let a second one divide its results", at=0)
        return Statement(
            target=target,
            options=options,
            query=self._rewrite(begin, relations, estimated),
            sources=MappingProxyType(sources),
            tables=MappingProxyType(tables),
            windows=windows,
            intervals_us=self._intervals_us(begin),
            line=line,
            query_line=self._tokens[begin].line,
            arguments=MappingProxyType(self._arguments(after_options)),
            windowed=windowed,
            reads=sum(each.is_stream for each in relations),
            sides=sides,
            late_into=late_into,
            feedback=feedback,
            functions=self._called(handler),
            handler=handler,
        )

    def declaration(self) -> Parameter:
        """A `DECLARE PARAMETER name TYPE [DEFAULT value]`."""
        self._at = 2
        name, kind = self._name_at(2), self._tokens[3].text.upper() if len(self._tokens) > 3 else ""
        if name is None or kind not in TYPES:
            self._fail(f"expected DECLARE PARAMETER name TYPE [DEFAULT value], with a type of {', '.join(TYPES)}")
        self._at, default = 4, None
        if self._take("DEFAULT"):
            sign = "-" if self._take("-") else ""
            if self._peek() is None:
                self._fail("expected a value after DEFAULT")
            default = sign + self._tokens[self._at].text
            self._at += 1
        if self._peek() is not None:
            self._fail("expected ; after the declaration of a parameter")
        return Parameter(name, kind, default, self._tokens[0].line)

    # Functions

    def _handler(self, options: StatementOptions) -> DeclaredFunction | None:
        if options.handler is None:
            return None
        found = self._functions.get(options.handler.lower())
        if found is None or not found.of_batches:
            self._fail(
                f"handler = {options.handler}: expected a function that the file declares with RETURNS TABLE (…)", at=0
            )
        if options.mode != "append":
            self._fail("a statement with a handler has no mode = complete", at=0)
        return found

    def _called(self, handler: DeclaredFunction | None) -> tuple[DeclaredFunction, ...]:
        names = {token.text for token in self._tokens}
        return tuple(each for each in self._functions.values() if each is handler or each.spark_name in names)

    # Parameters

    def _parameter_at(self, index: int) -> str | None:
        """The parameter of `:name` at `index`. Raises InvalidSql for one that is not declared."""
        if index + 1 >= len(self._tokens) or self._tokens[index].token_type is not TokenType.COLON:
            return None
        name = self._name_at(index + 1)
        if name is None or self._tokens[index + 1].start != self._tokens[index].end + 1:
            return None
        if name not in self._values:
            self._fail(f"parameter ':{name}' is not declared: DECLARE PARAMETER {name} TYPE;", at=index)
        return name

    def _arguments(self, begin: int) -> dict[str, Any]:
        names = (self._parameter_at(index) for index in range(begin, len(self._tokens)))
        return {name: self._values[name] for name in names if name is not None}

    # Tokens

    def _peek(self, ahead: int = 0) -> Token | None:
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def _take(self, word: str) -> bool:
        token = self._peek()
        if token is None or token.text.upper() != word or token.token_type is TokenType.IDENTIFIER:
            return False
        self._at += 1
        return True

    def _fail(self, message: str, at: int | None = None) -> NoReturn:
        index = min(self._at if at is None else at, len(self._tokens) - 1)
        raise InvalidSql(message, line=self._tokens[index].line)

    def _name_at(self, index: int) -> str | None:
        """The name at `index`, quoted or not. Keywords count: they are valid names of scopes and streams."""
        if index >= len(self._tokens):
            return None
        token = self._tokens[index]
        if token.token_type is TokenType.IDENTIFIER:
            return token.text
        return token.text if token.token_type is not TokenType.STRING and _WORD.match(token.text) else None

    def _is_dot(self, index: int) -> bool:
        return index < len(self._tokens) and self._tokens[index].token_type is TokenType.DOT

    def _two_parts_at(self, index: int) -> tuple[str, str] | None:
        scope = self._name_at(index)
        if scope is None or not self._is_dot(index + 1) or self._is_dot(index + 3):
            return None
        name = self._name_at(index + 2)
        return None if name is None else (scope, name)

    def _stream_name(self, after: str) -> StreamName:
        parts = self._two_parts_at(self._at)
        if parts is None:
            self._fail(
                f"expected scope.name after {after}; quote parts that are not plain words: `my-scope`.`my-stream`"
            )
        try:
            name = StreamName.parse("/".join(parts))
        except InvalidName as exc:
            raise InvalidSql(str(exc), line=self._tokens[self._at].line) from exc
        end = self._tokens[self._at + 2].end
        self._at += 3
        following = self._peek()
        # Otherwise `iot.my-stream` would be read as `iot.my` and a stray minus.
        if (
            following is not None
            and following.start == end + 1
            and following.token_type in (TokenType.DASH, TokenType.SLASH)
        ):
            self._fail(f"quote names that are not plain words: {parts[0]}.`{parts[1]}{following.text}…`")
        return name

    # WITH (…)

    def _options(self) -> StatementOptions:
        opened = self._at
        if not self._take("("):
            self._fail("expected ( after WITH")
        given: dict[str, tuple[str, int]] = {}
        while not self._take(")"):
            if self._peek() is None:
                self._fail("the ( after WITH is never closed", at=opened)
            if given and not self._take(","):
                self._fail("expected , or ) between the options of WITH")
            token = self._peek()
            name = self._name_at(self._at)
            if token is not None and token.token_type is TokenType.STRING:
                name = token.text
            if name is None:
                self._fail("expected an option: " + ", ".join(sorted(OPTIONS)))
            line = self._tokens[self._at].line
            name = name.lower()
            if name not in OPTIONS:
                raise InvalidSql(f"unknown option '{name}'; there are: {', '.join(sorted(OPTIONS))}", line=line)
            if name in given:
                raise InvalidSql(f"option '{name}' is given twice", line=line)
            self._at += 1
            if not self._take("="):
                self._fail(f"expected = after option '{name}'")
            value = self._peek()
            if (parameter := self._parameter_at(self._at)) is not None:
                given[name] = (str(self._values[parameter]), line)
                self._at += 2
                continue
            if value is None or not (
                value.token_type in (TokenType.STRING, TokenType.NUMBER) or self._name_at(self._at) is not None
            ):
                self._fail(f"expected a name, number or 'text' after {name} =")
            given[name] = (value.text, value.line)
            self._at += 1
        return to_options(given)

    # INTO …

    def _side_outputs(
        self, options: StatementOptions
    ) -> tuple[tuple[SideOutput, ...], tuple[SideOutput, ...], StreamName | None]:
        """The side outputs before AS, those that lead back, and the stream for late events if it is named."""
        sides: list[SideOutput] = []
        feedback: list[SideOutput] = []
        late: StreamName | None = None
        while (token := self._peek()) is not None and token.text.upper() in ("INTO", "COPY", "FEEDBACK"):
            opened = self._at
            copies = self._take("COPY")
            hops_max = self._hops() if self._take("FEEDBACK") else None
            if not self._take("INTO"):
                self._fail("expected INTO after COPY" if hops_max is None else "expected INTO after HOPS")
            if feedback and hops_max is None:
                self._fail("INTO comes before FEEDBACK: it is first to take rows", at=opened)
            if not copies and hops_max is None and not self._is_dot(self._at + 1) and self._take("LATE"):
                if late is not None or not options.late:
                    self._fail("late events go into one stream, and nowhere with late = false", at=opened)
                late = self._stream_name("INTO LATE")
                continue
            target = self._stream_name("INTO")
            if not self._take("WHEN"):
                self._fail("expected WHEN and a condition after INTO scope.name")
            begin, depth = self._at, 0
            while (token := self._peek()) is not None:
                word = "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()
                depth += (word == "(") - (word == ")")
                if depth == 0 and (word in ("INTO", "COPY", "AS") or self._is_feedback()):
                    break
                self._at += 1
            if self._at == begin:
                self._fail("expected a condition after WHEN")
            condition = self._text[self._tokens[begin].start : self._tokens[self._at - 1].end + 1]
            output = SideOutput(target, condition, self._tokens[begin].line, copies, hops_max)
            (sides if hops_max is None else feedback).append(output)
        if (sides or feedback) and options.mode != "append":
            self._fail("a statement with side outputs has no mode = complete", at=0)
        if len(sides) + len(feedback) > SIDE_OUTPUTS_MAX:
            self._fail(f"a statement has at most {SIDE_OUTPUTS_MAX} side outputs", at=0)
        return tuple(sides), tuple(feedback), late

    def _is_feedback(self) -> bool:
        """True for the clause, which a column may be called like."""
        words = [token.text.upper() for token in self._tokens[self._at : self._at + 2]]
        return words == ["FEEDBACK", "WITHIN"] and self._tokens[self._at].token_type is not TokenType.IDENTIFIER

    def _hops(self) -> int:
        form = f"expected FEEDBACK WITHIN n HOPS INTO scope.name WHEN condition, with n from 1 to {HOPS_MAX:,}"
        if not self._take("WITHIN"):
            self._fail(form)
        value, self._at = value_at(self._tokens, self._at, self._values)
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not 1 <= value <= HOPS_MAX
            or not self._take("HOPS")
        ):
            self._fail(form, at=self._at - 1)
        return value

    # The query

    def _relations(self) -> tuple[list[Relation], dict[str, StreamName], dict[str, StreamName]]:
        """Find the streams and tables that the query reads. Returns these, and the sources and the tables by view."""
        found: list[Relation] = []
        sources: dict[str, StreamName] = {}
        tables: dict[str, StreamName] = {}
        versions: dict[str, StreamName] = {}
        queries = [False]  # per open parenthesis: is it a (sub)query, whose FROM names relations?
        opened: list[int] = []
        previous = "("
        while (token := self._peek()) is not None:
            word = "…" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()
            if word == "(":
                queries.append(False)
                opened.append(self._at)
            elif word == ")":
                if not opened:
                    self._fail("unmatched ')'")
                queries.pop()
                opened.pop()
            elif word == "SELECT" or (word == "FROM" and previous == "("):
                queries[-1] = True
            # `extract(year FROM at)` and `a IS DISTINCT FROM b` name no relation.
            is_relation = word == "JOIN" or (word == "FROM" and queries[-1] and previous != "DISTINCT")
            previous = word
            first = self._at = self._at + 1
            if self._is_stream_keyword() and (is_relation or (word == "," and self._two_parts_at(first + 1))):
                self._at += 1
                name = self._stream_name(f"{'FROM' if word == ',' else word} STREAM")
                view = _view_of(name, sources, f"anabranch_{self._number}_stream_")
            elif is_relation and self._is_versions_keyword():
                self._at += 1
                name = self._stream_name("VERSIONS")
                view = _view_of(name, versions, f"anabranch_{self._number}_{VERSIONS_VIEW}_")
            elif is_relation and (parts := self._two_parts_at(first)) and parts[0].lower() not in _FILE_FORMATS:
                name = self._stream_name(word)
                view = _view_of(name, tables, f"anabranch_{self._number}_table_")
            else:
                continue
            found.append(Relation(first, self._at - 1, view + self._alias_for(name), name.name, view in sources))
            previous = "…"
        if opened:
            self._fail("this ( is never closed", at=opened[-1])
        return found, sources, {**tables, **versions}

    def _is_stream_keyword(self) -> bool:
        token = self._peek()
        return token is not None and token.token_type is TokenType.VAR and token.text.upper() == "STREAM"

    def _is_versions_keyword(self) -> bool:
        token = self._peek()
        return (
            token is not None
            and token.token_type is not TokenType.IDENTIFIER
            and token.text.upper() == "VERSIONS"
            and self._two_parts_at(self._at + 1) is not None
        )

    def _alias_for(self, name: StreamName) -> str:
        """` AS name` unless the query gives an alias, so that `name.column` still works over a view."""
        token = self._peek()
        if token is not None and token.token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER):
            return ""
        return f" AS `{name.name}`"

    def _rewrite(self, begin: int, relations: Sequence[Relation], estimated: Sequence[Replacement]) -> str:
        """The query's original text with the replacements applied; comments and line breaks are kept."""
        parts: list[str] = []
        position = self._tokens[begin].start
        named = [(each.first, each.last, each.text) for each in relations]
        for first, last, text in sorted([*named, *estimated]):
            parts += [self._text[position : self._tokens[first].start], text]
            position = self._tokens[first].start if last < first else self._tokens[last].end + 1
        parts.append(self._text[position : self._tokens[-1].end + 1])
        return "".join(parts)

    def _windows(self, begin: int) -> tuple[StatementWindow, ...]:
        windows: dict[StatementWindow, None] = {}
        for index in range(begin, len(self._tokens) - 1):
            word = self._tokens[index].text.lower()
            opens = self._tokens[index + 1].token_type is TokenType.L_PAREN
            quoted = self._tokens[index].token_type in (TokenType.IDENTIFIER, TokenType.STRING)
            if word in ("window", "session_window") and opens and not quoted and not self._is_dot(index - 1):
                windows[self._window(index, is_session=word == "session_window")] = None
        return tuple(windows)

    def _intervals_us(self, begin: int) -> int:
        """The sum of the query's interval literals. Those without a fixed length count as 0; Spark judges them."""
        total = 0
        for index in range(begin, len(self._tokens) - 1):
            token = self._tokens[index]
            if token.text.upper() == "INTERVAL" and token.token_type is not TokenType.IDENTIFIER:
                total += _literal_us([each.text for each in self._tokens[index + 1 : index + 1 + _LITERAL_TOKENS_MAX]])
        return total

    def _window(self, index: int, *, is_session: bool) -> StatementWindow:
        line = self._tokens[index].line
        column, at = self._name_at(index + 2), index + 3
        while self._is_dot(at):  # alias.column, record.field
            column, at = self._name_at(at + 1), at + 2
        spans: list[int] = []
        while at + 1 < len(self._tokens) and self._tokens[at].token_type is TokenType.COMMA:
            if (parameter := self._parameter_at(at + 1)) is not None:
                spans.append(_interval_us(str(self._values[parameter]), line))
                at += 3
                continue
            spans.append(_window_us(self._tokens[at + 1], line))
            at += 2
        closed = at < len(self._tokens) and self._tokens[at].token_type is TokenType.R_PAREN
        if column is None or not closed or not 1 <= len(spans) <= (1 if is_session else 3):
            wanted = "session_window(column, 'gap')" if is_session else "window(column, 'size'[, 'slide'[, 'start']])"
            raise InvalidSql(f"write {wanted}, with a plain column and constant intervals", line=line)
        size, slide = spans[0], 0 if is_session else spans[1] if len(spans) > 1 else spans[0]
        start = spans[2] if len(spans) > 2 else 0
        if size <= 0 or slide < 0 or (slide == 0 and not is_session) or slide > size or abs(start) >= max(slide, 1):
            raise InvalidSql("a window needs 0 < slide <= size and a start within one slide", line=line)
        return StatementWindow(column, size, slide, start)


def _literal_us(words: Sequence[str]) -> int:
    """The length of the longest interval that these words begin with: `10 minutes`, `'1 hour'`, `'1' hour`; else 0."""
    for count in range(len(words), 0, -1):
        try:
            return parse_interval_us(" ".join(words[:count]))
        except InvalidSql:
            continue
    return 0


def _window_us(token: Token, line: int) -> int:
    if token.token_type is TokenType.NUMBER and token.text.isdecimal():
        return int(token.text)  # Spark interprets a bare number as µs
    if token.token_type is not TokenType.STRING:
        raise InvalidSql(f"a window's intervals are constants such as '10 seconds', not {token.text}", line=line)
    return _interval_us(token.text, line)


def _interval_us(text: str, line: int) -> int:
    try:
        return parse_interval_us(text)
    except InvalidSql as exc:
        raise InvalidSql(str(exc), line=line) from exc


def _view_of(name: StreamName, views: dict[str, StreamName], prefix: str) -> str:
    """The view of a stream, added to `views` if new. Views are per statement, because watermarks are."""
    for view, known in views.items():
        if known == name:
            return view
    view = f"{prefix}{len(views) + 1}"
    views[view] = name
    return view
