"""Removes from a statement the clauses that only its dialect has: the head, windows, watermarks and EMIT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.query.dialects.text import Found, StatementText
from anabranch.query.dialects.windows import ABBREVIATED_UNITS, UNITS_US, WINDOW_KINDS, DialectWindow

SESSION_CALL: Final = "SESSIO_"
"""Stands for SESSION before a bracket, because SESSION is a keyword to the parser of Flink's SQL."""
ROWS_INSTEAD: Final = "write a statement in the store's own SQL, with explode(…) in a pipeline or unnest(…) in a query"
"""The advice in messages about a function that returns a table."""
_NEAREST: Final = "use TUMBLE, HOP or SESSION"


def take_out(text: StatementText, dialect: str, time: str | None) -> Found:
    """The dialect's own clauses; they are blanked in the text. `time` is the column of event times if the dialect names
    none. Raises InvalidSql."""
    found = Found()
    _head(text, found)
    if dialect in _OF_DIALECT:
        _OF_DIALECT[dialect](text, found, time)
    return found


def declaration(text: StatementText) -> tuple[str, int | None] | None:
    """Of `CREATE TABLE name (…, WATERMARK FOR c AS c - INTERVAL …)`: the name, and the watermark's delay in µs. None for a
    statement that declares no table."""
    if text.word(0) != "CREATE" or text.find("SELECT") is not None:
        return None
    place = 2 if text.word(1) in ("TEMPORARY", "EXTERNAL") else 1
    if text.word(place) not in ("TABLE", "SOURCE", "STREAM"):
        return None
    place += 4 if text.words(place + 1, "IF", "NOT", "EXISTS") else 1
    table, _ = text.name(place)
    at = text.find("WATERMARK", "FOR")
    return table, None if at is None else _delay(text, at + 2)


def _delay(text: StatementText, at: int) -> int:
    """Of `c AS c - INTERVAL …`, in µs."""
    column, behind = text.name(at)
    if text.word(behind) != "AS" or text.name(behind + 1)[0] != column:
        raise text.error(
            f"a watermark is of the column itself: WATERMARK FOR {column} AS {column} - INTERVAL …", behind
        )
    _, behind = text.name(behind + 1)
    if text.word(behind) in (")", ","):
        return 0
    if text.word(behind) != "-":
        raise text.error("expected - INTERVAL … behind the column of a watermark", behind)
    stop = next((n for n in range(behind, len(text.tokens)) if text.word(n) in (")", ",")), len(text.tokens))
    return text.duration(behind + 1, stop - 1, least=0)


def _head(text: StatementText, found: Found) -> None:
    """`CREATE … name AS`, `INSERT INTO name`."""
    if text.word(0) == "INSERT":
        if not text.words(0, "INSERT", "INTO"):
            raise text.error("expected INSERT INTO name SELECT …", 1)
        found.target, behind = text.name(2)
        if text.word(behind) in ("(", "PARTITION"):
            raise text.error(
                "columns and partitions of the target are not translated; name the columns in SELECT", behind
            )
        text.blank(0, behind - 1)
        return
    if text.word(0) != "CREATE":
        return
    at = 1
    while text.word(at) in ("OR", "REPLACE", "MATERIALIZED", "TEMPORARY", "DYNAMIC"):
        at += 1
    if text.word(at) not in ("TABLE", "STREAM", "VIEW"):
        raise text.error(f"CREATE {text.word(at)} is not supported; write CREATE TABLE name AS SELECT …", at)
    at += 1
    if text.words(at, "IF", "NOT", "EXISTS"):
        at += 3
    found.target, at = text.name(at)
    if text.word(at) == "(":
        raise text.error("columns of the target are not translated; name the columns in SELECT", at)
    begin = next((n for n in range(at, len(text.tokens)) if text.word(n) in ("AS", "SELECT")), None)
    if begin is None or text.word(begin) != "AS":
        raise text.error(
            "a table without AS SELECT … is not supported; create a stream for it: anabranch stream create", at
        )
    at = begin  # clauses before AS, such as WITH (…) and TARGET_LAG = …, are settings of the other system
    text.blank(0, at)


def _set(text: StatementText, found: Found, window: DialectWindow, at: int) -> None:
    if found.window is not None:
        raise text.error("a second window in one statement is not supported; write a statement for each", at)
    if window.kind == "hop" and not 0 < window.slide_us <= window.size_us:
        raise text.error("expected a window that advances by at most its size", at)
    found.window = window


def _flink(text: StatementText, found: Found, _time: str | None) -> None:
    """`TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), …))`, and `SESSION(c, …)` in GROUP BY."""
    if (at := text.find("MATCH_RECOGNIZE")) is not None:  # Spark, whose parser reads the rest, has none
        raise text.error("MATCH_RECOGNIZE is not translated; write a pipeline with a session window", at)
    while (at := text.find("TABLE", "(")) is not None and text.word(at + 3) == "(":
        kind, closing = text.word(at + 2), text.closing(at + 1)
        arguments = text.arguments(at + 3)
        while kind == "SESSION" and len(arguments) > 1 and text.word(arguments[1][0]) != "DESCRIPTOR":
            arguments[:2] = [(arguments[0][0], arguments[1][1])]  # the columns of PARTITION BY
        if kind not in ("TUMBLE", "HOP", "SESSION"):
            raise text.error(_no_window(text, at), at + 2)
        if any(text.word(first + 1) == "=>" or text.words(first + 1, "=", ">") for first, _ in arguments):
            raise text.error("named arguments are not supported; pass them by position", arguments[0][0])
        if len(arguments) != (4 if kind == "HOP" else 3):
            raise text.error(
                f"{kind} takes a table, DESCRIPTOR(column) and {'two lengths' if kind == 'HOP' else 'a length'}", at + 2
            )
        table = _partitioned(text, arguments[0], kind, found)
        if text.word(table[0]) != "TABLE" or not text.words(arguments[1][0], "DESCRIPTOR", "("):
            raise text.error(f"expected {kind}(TABLE name, DESCRIPTOR(column), …)", at + 4)
        column, _ = text.name(arguments[1][0] + 2)
        _set(text, found, _window_of(text, kind, column, arguments), at)
        text.remove(table[1] + 1, closing)
        text.remove(at, table[0])
    for kind in ("TUMBLE", "HOP", "SESSION", "CUMULATE"):
        if (at := text.find(kind, "(", "TABLE")) is not None:
            raise text.error(f"write TABLE({kind}(…)) around the window", at)

    while (at := text.find("SESSION", "(")) is not None:
        text.put(at, at, SESSION_CALL)
        del text.tokens[at]


def _no_window(text: StatementText, at: int) -> str:
    """The message for `TABLE(f(x))` at an index, where `f` is not a supported window."""
    name = text.tokens[at + 2].text
    if name.upper() == "CUMULATE":
        return f"windows of {name} are not supported; {_NEAREST}"
    what = f"LATERAL TABLE({name}(…))" if text.word(at - 1) == "LATERAL" else f"the function {name} as a table"
    return f"{what} is not translated; {ROWS_INSTEAD}"


def _partitioned(text: StatementText, table: tuple[int, int], kind: str, found: Found) -> tuple[int, int]:
    """The tokens of `TABLE t` without `PARTITION BY a, b`, whose columns are noted."""
    by = next((n for n in range(*table) if text.word(n) == "PARTITION BY"), None)
    if kind == "SESSION":
        found.partition = []
    if by is None:
        return table
    if kind != "SESSION":
        raise text.error(f"PARTITION BY is of SESSION windows only; leave it out of {kind}", by)
    found.partition = [text.name(n)[0].lower() for n in range(by + 1, table[1] + 1, 2)]
    return table[0], by - 1


def _window_of(text: StatementText, kind: str, column: str, arguments: list[tuple[int, int]]) -> DialectWindow:
    """Of `kind(table, column, [slide,] size)`."""
    spans = [text.duration(first, last) for first, last in arguments[2:]]
    return DialectWindow(WINDOW_KINDS[kind], column, spans[-1], spans[0] if kind == "HOP" else 0)


_OF_KSQLDB: Final = {
    "WITHIN": "a join WITHIN a time is not translated; write a pipeline of two streams, with a condition on their times",
    "PARTITION BY": "PARTITION BY is not translated; leave it out, and write WITH (key = …) in the pipeline",
}


def _ksqldb(text: StatementText, found: Found, time: str | None) -> None:
    """`WINDOW TUMBLING (SIZE …)`, `EMIT CHANGES`."""
    at = text.find("EMIT")
    if at is not None:
        if text.word(at + 1) not in ("CHANGES", "FINAL"):
            raise text.error("expected EMIT CHANGES or EMIT FINAL", at)
        text.blank(at, at + 1)
    for word, message in _OF_KSQLDB.items():
        if (place := text.find(word)) is not None:
            raise text.error(message, place)
    at = text.find("WINDOW")
    if at is None:
        return
    found.groups = False
    kind = text.word(at + 1)
    if kind not in ("TUMBLING", "HOPPING", "SESSION") or text.word(at + 2) != "(":
        raise text.error("expected WINDOW TUMBLING (…), HOPPING (…) or SESSION (…)", at)
    if time is None:
        raise text.error("ksqlDB's windows use ROWTIME: name its column with --time", at)
    spans: dict[str, int] = {}
    for first, last in text.arguments(at + 2):
        word = text.word(first)
        begin = {"SIZE": 1, "ADVANCE": 2}.get(word, 0)
        if word not in ("GRACE", "RETENTION"):
            spans[word if begin else "GAP"] = text.duration(first + begin, last)
    size = spans.get("GAP" if kind == "SESSION" else "SIZE")
    if size is None or (kind == "HOPPING" and "ADVANCE" not in spans):
        raise text.error(f"expected the length of a {kind} window", at + 2)
    slide = spans["ADVANCE"] if kind == "HOPPING" else 0
    window = DialectWindow(WINDOW_KINDS[kind], time, size, slide, ends_with_event=kind == "SESSION")
    _set(text, found, window, at)
    text.blank(at, text.closing(at + 2))


def _azure(text: StatementText, found: Found, time: str | None) -> None:
    """`INTO output`, `TIMESTAMP BY column`, `TumblingWindow(second, 10)`."""
    at = text.find("INTO")
    if at is not None and found.target is None:
        found.target, behind = text.name(at + 1)
        text.blank(at, behind - 1)
    at = text.find("TIMESTAMP", "BY")
    column = time
    if at is not None:
        column, behind = text.name(at + 2)
        if text.word(behind) == "(":
            raise text.error("TIMESTAMP BY an expression is not translated; name a column of times", at + 2)
        text.blank(at, behind - 1)
        if text.word(behind) == "OVER":
            raise text.error("TIMESTAMP BY … OVER is not translated; leave out OVER", behind)
    for wanted, message in _OF_AZURE:
        if (place := text.find(*wanted, start=0 if at is None else at + 1)) is not None:
            raise text.error(message, place)
    for at in range(len(text.tokens)):
        word = text.word(at)
        if word in ("SLIDINGWINDOW", "SNAPSHOTWINDOW", "WINDOWS"):
            raise text.error(
                f"{text.tokens[at].text} is not supported; use TumblingWindow, HoppingWindow or SessionWindow", at
            )
        kind = WINDOW_KINDS.get(word)
        if kind is None or not word.endswith("WINDOW"):
            continue
        if column is None:
            raise text.error("expected TIMESTAMP BY column, or the column with --time", at)
        spans = _azure_spans(text, at, 2 if kind == "hop" else 1)
        if kind != "session" and UNITS_US["day"] % spans[-1]:
            raise text.error(
                "where windows begin whose length does not divide a day is not documented; write another length", at
            )
        slide = spans[1] if kind == "hop" else 0
        _set(text, found, DialectWindow(kind, column, spans[0], slide, end_inclusive=kind != "session"), at)
        text.put(at, text.closing(at + 1), "window_end")
    while (at := text.find("SYSTEM", ".", "TIMESTAMP")) is not None:
        closing = at + 4 if text.word(at + 3) == "(" else at + 2
        if found.window is None and column is None:
            raise text.error("expected TIMESTAMP BY column, or the column with --time", at)
        text.put(at, closing, "window_end")
        del text.tokens[at]
        found.event_time = None if found.window is not None else column


_OF_AZURE: Final = (
    (
        ("TIMESTAMP", "BY"),
        "a join of two streams is not translated; write a pipeline with both and a condition on their times",
    ),
    (("PARTITION BY",), "PARTITION BY is not translated; leave it out"),
)


def _azure_spans(text: StatementText, at: int, count: int) -> list[int]:
    arguments = text.arguments(at + 1)
    word = text.word(arguments[0][0]).lower()
    unit = UNITS_US.get(ABBREVIATED_UNITS.get(word, word.removesuffix("s")))
    numbers = [text.word(first) for first, _ in arguments[1:]]
    if unit is None or len(numbers) != count or not all(each.isdecimal() and int(each) > 0 for each in numbers):
        extra = "; a session's longest duration is not supported" if text.word(at) == "SESSIONWINDOW" else ""
        raise text.error(f"expected {text.tokens[at].text}(second, {', '.join(['10', '5'][:count])}){extra}", at)
    return [int(each) * unit for each in numbers]


def _names_tables(text: StatementText, place: int) -> bool:
    """Whether the FROM or JOIN at an index is a clause, and not that of `EXTRACT(HOUR FROM f(x))` or `IS DISTINCT FROM f(x)`."""
    if text.word(place - 1) == "DISTINCT" and text.word(place - 2) in ("IS", "NOT"):
        return False
    depth = 0
    for at in range(place - 1, -1, -1):
        depth += {"(": -1, ")": 1}.get(text.word(at), 0)
        if depth < 0:
            return text.word(at + 1) in ("SELECT", "WITH", "(")
    return True


def _risingwave(text: StatementText, found: Found, _time: str | None) -> None:
    """`FROM TUMBLE(t, c, …)`, `EMIT ON WINDOW CLOSE`."""
    at = text.find("EMIT", "ON", "WINDOW", "CLOSE")
    if at is not None:
        text.remove(at, at + 3)
    for place in range(len(text.tokens) - 2, -1, -1):
        if text.word(place) not in ("FROM", "JOIN") or text.word(place + 2) != "(" or not _names_tables(text, place):
            continue
        kind = text.word(place + 1)
        if kind not in ("TUMBLE", "HOP", "SESSION"):
            raise text.error(
                f"a function {text.tokens[place + 1].text} as a table is not supported; {_NEAREST}", place + 1
            )
        arguments = text.arguments(place + 2)
        if len(arguments) != (4 if kind == "HOP" else 3):
            raise text.error(
                f"{kind} takes a table, a column and {'two lengths' if kind == 'HOP' else 'a length'}", place + 1
            )
        column, _ = text.name(arguments[1][0])
        _set(text, found, _window_of(text, kind, column, arguments), place + 1)
        text.remove(arguments[0][1] + 1, text.closing(place + 2))
        text.remove(place + 1, place + 2)


_OF_DIALECT: Final[Mapping[str, Callable[[StatementText, Found, str | None], None]]] = {
    "flink": _flink,
    "ksqldb": _ksqldb,
    "azure": _azure,
    "risingwave": _risingwave,
}
