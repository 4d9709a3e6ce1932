"""Divides a query whose windows Spark does not compute into two: what it does with events before they are in windows, and
what it does with the events of windows. Pure.

    SELECT device, count_window.end AS closed, avg(celsius) AS celsius
    FROM STREAM iot.sensors WHERE celsius > 0
    GROUP BY device, count_window(100)

    SELECT device, window.end AS closed, pane.timing AS timing, avg(celsius) AS celsius
    FROM STREAM iot.sensors
    GROUP BY device, window(at, '1 minute')
    EMIT EARLY EVERY 100 EVENTS, LATE WITHIN '1 hour', RETRACTING

The name and the order of the arguments of `count_window` are those of TDengine's COUNT_WINDOW (and Flink's
`countWindow`), as are its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from sqlglot import Token, TokenType

from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.sql_tokens import closing, is_call, list_items, outside_parentheses, replaced, value_at
from anabranch.spark.pipelines.windows.columns import COUNT_WINDOW, KEY, NUMBER, ORDER, PANE, SESSION_WINDOW, WINDOW
from anabranch.spark.pipelines.windows.count import CountWindow
from anabranch.spark.pipelines.windows.drift import DriftDetector
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.emit_clauses import emit_policy
from anabranch.spark.pipelines.windows.spans import StatementWindow
from anabranch.spark.quoting import quoted

__all__ = ["RESULTS_VIEW", "Relation", "WindowedQuery", "windowed_query"]

RESULTS_VIEW: Final = "anabranch_windows"
_SIZE_MAX: Final = 1_000_000
_FORM: Final = "SELECT … FROM STREAM scope.name [WHERE …] GROUP BY [columns,] {window} [HAVING …]"
_COUNT_WINDOWS: Final = "count_window(events[, step])"
_TIME_WINDOWS: Final = "window(time, 'size'[, 'slide']) or session_window(time, 'gap')"


@dataclass(frozen=True, slots=True)
class WindowedQuery:
    """The two parts of a query. `events` is the SQL of the events before windows, with `keys` columns for their key.
    `results` is the SQL over the view `RESULTS_VIEW`, which has the events of windows that are due, or with `emit` of
    panes that are due. `words` (lower case) are the columns of `events` to which `results` may refer; None: any.
    Windows of time always have `emit`."""

    window: CountWindow | StatementWindow | DriftDetector
    events: str
    results: str
    keys: int
    words: frozenset[str] | None
    emit: EmitPolicy | None = None

    @property
    def detects_drift(self) -> bool:
        """True for a query with DETECT DRIFT."""
        return isinstance(self.window, DriftDetector)


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or table of the query: its first and last token, the text that replaces these, and its name."""

    first: int
    last: int
    text: str
    name: str
    is_stream: bool


def windowed_query(
    cursor: Cursor, begin: int, relations: Sequence[Relation], windows: Sequence[StatementWindow]
) -> WindowedQuery | None:
    """The parts of the query whose tokens begin at `begin`; None if Spark computes its windows. `windows` are the query's
    windows of time. Raises InvalidSql."""
    emit = _emit(cursor, begin)
    end = len(cursor.tokens) if emit is None else emit
    count = [index for index in range(begin, len(cursor.tokens)) if is_call(cursor.tokens, index, (COUNT_WINDOW,))]
    if not count and emit is None:
        return None
    time = [index for index in range(begin, end) if is_call(cursor.tokens, index, (WINDOW, SESSION_WINDOW))]
    return _Division(cursor, begin, end, relations, windows, count, time, emit).divided()


def _emit(cursor: Cursor, begin: int) -> int | None:
    """Where the clause EMIT begins, which is after GROUP BY."""
    grouped = False
    for index in outside_parentheses(cursor.tokens, begin):
        grouped = grouped or cursor.kind_at(index) is TokenType.GROUP_BY
        begins = cursor.kind_at(index) is TokenType.VAR and cursor.word_at(index) == "EMIT"
        if grouped and begins and cursor.kind_at(index - 1) not in _BEFORE_NAMES:
            return index
    return None


@dataclass(frozen=True, slots=True)
class _Division:
    """A query under division, from its token at `begin` to before the one at `end`: with the calls of count_window at `count`,
    those of windows of time at `time`, and EMIT at `emit`."""

    cursor: Cursor
    begin: int
    end: int
    relations: Sequence[Relation]
    windows: Sequence[StatementWindow]
    count: Sequence[int]
    time: Sequence[int]
    emit: int | None

    @property
    def _calls(self) -> Sequence[int]:
        """The calls of the window's function."""
        return self.count or self.time

    @property
    def tokens(self) -> Sequence[Token]:
        """The tokens of the statement."""
        return self.cursor.tokens

    @property
    def _form(self) -> str:
        form = _FORM.format(window=_COUNT_WINDOWS if self.count else _TIME_WINDOWS)
        return form if self.emit is None else f"{form} EMIT …"

    def divided(self) -> WindowedQuery:
        spans, policy = self._kind()
        self._refuse_relative()
        marks = self._clauses()
        groups = marks.get("GROUP BY")
        if "FROM" not in marks or groups is None:
            self._fail(f"expected count_window in GROUP BY: {self._form}", self._calls[0])
        items = self._groups(groups + 1, marks.get("HAVING", self.end))
        called = [item for item in items if item[0] in self._calls]
        if len(called) != 1:
            self._fail(f"expected one window in GROUP BY: {self._form}", self._calls[0] if self._calls else groups)
        whole = closing(self.tokens, called[0][0] + 1) + 1 == called[0][1]
        window = spans or self._count_window(called[0])
        if not whole:
            self._fail(f"expected {self._form}", called[0][0])
        keys = [item for item in items if item is not called[0]]
        alias = self._alias(marks["FROM"], marks.get("WHERE", groups))
        return WindowedQuery(
            window,
            self._events(marks["FROM"], groups, keys),
            self._results(
                marks["FROM"], groups, called[0], alias, keys if policy and policy.mode == "retracting" else None
            ),
            len(keys),
            self._words([*range(self.begin, marks["FROM"]), *range(groups, self.end)]),
            policy,
        )

    def _kind(self) -> tuple[StatementWindow | None, EmitPolicy | None]:
        """The window of time, if that is what the query has, and its policy."""
        text, tokens, values = self.cursor.text, self.cursor.tokens, self.cursor.values
        policy = None if self.emit is None else emit_policy(Cursor(text, tokens, values, at=self.emit))
        if self.count:
            if self.time:
                self._fail(
                    "a statement can't have both count_window and other windows: use a second statement", self.time[0]
                )
            if self.emit is not None and policy is not None and policy.late_us:
                self._fail("LATE WITHIN requires windows of time; count_window takes events as they come", self.emit)
            return None, policy
        assert self.emit is not None, "there is a count_window or EMIT"
        if len(self.windows) != 1:
            self._fail(f"EMIT requires exactly one kind of window: {self._form}", self.emit)
        return self.windows[0], policy

    def _refuse_relative(self) -> None:
        """Refuse DISTINCT, OVER and OFFSET, which relate results to each other: Spark would relate only those of one
        micro-batch."""
        outside = set(outside_parentheses(self.tokens, self.begin + 1, self.end))
        for index in range(self.begin + 1, self.end):
            token, before = self.tokens[index], self.tokens[index - 1].token_type
            after = self.cursor.kind_at(index + 1)
            distinct = token.token_type is TokenType.DISTINCT and index == self.begin + 1
            over = token.token_type is TokenType.OVER and before is TokenType.R_PAREN
            offset = token.token_type is TokenType.OFFSET and after in (TokenType.NUMBER, TokenType.COLON)
            if distinct or over or (offset and index in outside):
                self._fail(
                    f"a query with these windows can't have {token.text.upper()}, which would only see the results of one "
                    "micro-batch: use it in a query of the result stream",
                    index,
                )

    def _fail(self, message: str, index: int) -> NoReturn:
        self.cursor.fail(message, at=index)

    def _clauses(self) -> dict[str, int]:
        """Where the query's own clauses begin. Raises InvalidSql for one that it can't have."""
        allowed = ("FROM", "WHERE", "GROUP BY", "HAVING")
        found: dict[str, int] = {}
        for index in outside_parentheses(self.tokens, self.begin, self.end):
            word = " ".join(self.cursor.word_at(index).split())
            after_dot = self.cursor.is_dot(index - 1)
            if word == "FROM" and self.cursor.word_at(index - 1) == "DISTINCT":  # IS DISTINCT FROM
                continue
            if word in allowed and not after_dot:
                if any(allowed.index(each) >= allowed.index(word) for each in found):
                    self._fail(f"expected {self._form}", index)
                found[word] = index
            elif self.cursor.kind_at(index) in _REFUSED and not after_dot:
                self._fail(f"a query with these windows can't have {word}: {self._form}", index)
        if self.cursor.word_at(self.begin) != "SELECT":
            self._fail(f"expected {self._form}", self.begin)
        return found

    def _groups(self, first: int, end: int) -> list[tuple[int, int]]:
        """The items of GROUP BY."""
        items = list_items(self.tokens, first, end)
        for begun, after in items:
            words = [token.text.upper() for token in self.tokens[begun:after]]
            if not words or words in (["ALL"],) or words[0] in ("ROLLUP", "CUBE", "GROUPING SETS", "GROUPING"):
                self._fail(f"expected columns and a window after GROUP BY: {self._form}", begun)
            if len(words) == 1 and words[0].isdecimal():
                self._fail("GROUP BY names columns here, not their numbers", begun)
        return items

    def _count_window(self, item: tuple[int, int]) -> CountWindow:
        form = "write count_window(events[, step]) with whole numbers"
        numbers = []
        for first, end in list_items(self.tokens, item[0] + 2, closing(self.tokens, item[0] + 1)):
            value, after = value_at(self.tokens, first, self.cursor.values)
            if not isinstance(value, int) or isinstance(value, bool) or after != end:
                self._fail(form, first)
            numbers.append(value)
        if len(numbers) > 2:
            self._fail(form, item[0])
        window = CountWindow(numbers[0], numbers[-1])
        if not 1 <= window.step <= window.size <= _SIZE_MAX:
            self._fail(f"count_window needs 1 <= step <= events <= {_SIZE_MAX:,}", item[0])
        return window

    def _alias(self, begin: int, end: int) -> str:
        """The name under which the query refers to its stream."""
        form = (
            "a query with these windows reads one stream: FROM STREAM scope.name [AS name]; join in another statement"
        )
        if len(self.relations) != 1 or not self.relations[0].is_stream or self.relations[0].first != begin + 1:
            self._fail(form, begin)
        rest = self.tokens[self.relations[0].last + 1 : end]
        if rest and rest[0].token_type is TokenType.ALIAS:
            rest = rest[1:]
        if len(rest) > 1:
            self._fail(form, begin)
        return rest[0].text if rest else self.relations[0].name

    def _events(self, begin: int, end: int, keys: Sequence[tuple[int, int]]) -> str:
        chosen = "".join(f", {self._replaced(*key)} AS {KEY}{number}" for number, key in enumerate(keys))
        return f"SELECT *{chosen} {self._lines(self.begin, begin)}{self._replaced(begin, end)}"

    def _results(
        self,
        begin: int,
        end: int,
        grouped: tuple[int, int],
        alias: str,
        ordered: Sequence[tuple[int, int]] | None,
    ) -> str:
        """The SQL of the results. With `ordered`, the keys, it has columns by which the results of a key are put in order."""
        window = COUNT_WINDOW if self.count else self.tokens[grouped[0]].text.lower()
        beside = NUMBER if self.emit is None else PANE
        calls = [(call, closing(self.tokens, call + 1) + 1, window) for call in self._calls if call != grouped[0]]
        calls.append((*grouped, f"{window}, {beside}"))
        head, rest = self._replaced(self.begin, begin, calls), self._replaced(end, self.end, calls)
        if ordered is not None:
            keys = "".join(f", {self._replaced(*key)} AS {KEY}{number}" for number, key in enumerate(ordered))
            head = f"{head}{keys}, struct({PANE}.index, {PANE}.retraction) AS {ORDER}"
        return f"{head} FROM {RESULTS_VIEW} AS {quoted(alias)} {self._lines(begin, end)}{rest}"

    def _lines(self, begin: int, end: int) -> str:
        """The line breaks of the tokens from `begin` to before `end`, so that Spark's messages name the file's lines."""
        return "\n" * self.cursor.text.count("\n", self.tokens[begin].start, self.tokens[end].start)

    def _replaced(self, begin: int, end: int, calls: Sequence[tuple[int, int, str]] = ()) -> str:
        """The text of these tokens, with relations and calls replaced."""
        changes = [(each.first, each.last + 1, each.text) for each in self.relations] + list(calls)
        tokens = self.tokens
        inside = (each for each in changes if begin <= each[0] and each[1] <= end)
        return replaced(
            self.cursor.text,
            ((tokens[first].start, tokens[after - 1].end + 1, text) for first, after, text in inside),
            tokens[begin].start,
            tokens[end - 1].end + 1,
        )

    def _words(self, indices: Sequence[int]) -> frozenset[str] | None:
        """The words by which these tokens may refer to columns; None if `*` stands for all columns."""
        words = set()
        for index in indices:
            token = self.tokens[index]
            if token.token_type is TokenType.STAR and self._is_all_columns(index):
                return None
            if token.token_type is not TokenType.STRING:
                words.add(token.text.lower())
        return frozenset(words)

    def _is_all_columns(self, index: int) -> bool:
        before = self.tokens[index - 1].token_type
        counts = before is TokenType.L_PAREN and self.tokens[index - 2].text.lower() == "count"
        multiplies = before in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.R_PAREN)
        return not counts and not multiplies


_BEFORE_NAMES: Final = (TokenType.GROUP_BY, TokenType.HAVING, TokenType.COMMA, TokenType.DOT)
"""After these, a word is the name of a column, also if it could begin a clause."""
_REFUSED: Final = frozenset(
    {TokenType.ORDER_BY, TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.QUALIFY}
    | {TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY, TokenType.LATERAL, TokenType.JOIN}
)
