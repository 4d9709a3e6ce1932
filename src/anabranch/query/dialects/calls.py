"""A call of a function in another system's SQL, with its arguments as they are written there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from anabranch import limits

LIKE_POSTGRESQL: Final = frozenset({"risingwave", "materialize"})
"""Dialects where EXTRACT(SECOND …) has a fraction, an interval may have several units and plural names of them, a cast to an
integer rounds half to even, and a sum of integers of up to 32 bits has 64 bits."""
IS_TIME: Final = "anabranch_time"
"""The key in `meta` that marks a bound of a window: a time in DuckDB and Spark, though milliseconds in ksqlDB."""


class NotTranslated(Exception):
    """A call that has no translation; the text says what to write instead. It becomes an InvalidSql."""

    start = 0
    """The offset of the call in the text of the statement."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The dialect of a statement, and where its translation runs: in a `pipeline`, and so in Spark, or in DuckDB."""

    dialect: str
    pipeline: bool

    def either(self, duckdb: str, spark: str) -> str:
        """The SQL for the target: `spark` in a pipeline, `duckdb` in a query."""
        return _not_too_long(spark if self.pipeline else duckdb)

    def written(self, node: exp.Expr) -> str:
        """A part of a statement as SQL of the target, in one line. Raises NotTranslated if the target has no such SQL."""
        target = "spark" if self.pipeline else "duckdb"
        try:
            found = node.sql(target, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as exc:
            raise NotTranslated(str(exc)) from exc
        return _not_too_long(found)

    def quoted(self, text: str) -> str:
        """A text as a literal."""
        return self.written(exp.Literal.string(text))


@dataclass(frozen=True, slots=True)
class WrittenCall(Conversion):
    """A call. Writers return SQL for it, in brackets if the outermost part is an operator."""

    name: str
    arguments: list[exp.Expr]

    def expect(self, least: int, most: int | None = None, *, example: str) -> None:
        """Raises NotTranslated unless the call has `least` to `most` arguments, or exactly `least` without a `most`."""
        if not least <= len(self.arguments) <= (most or least):
            raise NotTranslated(f"{self.name} with {len(self.arguments)} arguments is not translated; write {example}")

    def sql(self, at: int) -> str:
        """An argument as SQL, in brackets if it has an operator."""
        node = self.arguments[at]
        if isinstance(node, exp.Alias | exp.Star | exp.Distinct | exp.Kwarg | exp.Lambda | exp.Query):
            raise NotTranslated(f"this argument of {self.name} is not translated; pass a value")
        written = self.written(node)
        bare = isinstance(node, exp.Column | exp.Literal | exp.Var | exp.Func | exp.Paren | exp.Boolean | exp.Null)
        plain = bare and not isinstance(node, exp.Binary) and IS_TIME not in node.meta
        return written if plain else f"({written})"

    def text(self, at: int, *, what: str) -> str:
        """An argument that is a constant text. Raises NotTranslated for any other."""
        node = self.arguments[at]
        if not (node.is_string or isinstance(node, exp.RawString)):
            raise NotTranslated(f"{self.name} needs {what} that is a constant text")
        return node.name

    def whole(self, at: int) -> int | None:
        """An argument that is a constant whole number, else None. Raises NotTranslated for another constant number."""
        node = self.arguments[at]
        if not node.is_number:
            return None
        if not node.is_int:
            raise NotTranslated(f"{self.name} with a fraction is not translated; write a whole number")
        return int(node.to_py())

    def constant(self, at: int, *, least: int, most: int, what: str) -> int:
        """An argument that must be a constant whole number in these bounds, both inclusive."""
        found = self.whole(at)
        if found is None or not least <= found <= most:
            raise NotTranslated(f"{self.name} needs {what} that is a constant from {least} to {most:,}")
        return found

    def word(self, at: int) -> str:
        """An argument that is a word, such as a unit, in lower case: DAY, 'day'."""
        node = self.arguments[at]
        if node.is_string or isinstance(node, exp.Var) or (isinstance(node, exp.Column) and not node.table):
            return node.name.lower()
        raise NotTranslated(f"{self.name} needs a unit such as DAY")


Writer = Callable[[WrittenCall], str]
WriterRow = tuple[str, str, Writer]
"""Dialects, names of functions in upper case, and the writer for these functions in these dialects. Dialects and names are
separated by spaces."""


def _not_too_long(written: str) -> str:
    """The SQL. Raises NotTranslated if it is too long: it may repeat an argument, and so grow with each outer call."""
    if len(written) > limits.SQL_BYTES_MAX:
        raise NotTranslated("this is nested too deeply to be translated; write a part of it as a statement of its own")
    return written


def refused(call: WrittenCall, *, instead: str) -> str:
    """The writer for a known function that computes something else in the targets: raises NotTranslated."""
    raise NotTranslated(f"{call.name} is not translated; write {instead}")


def refused_in(dialects: str, names: str, *, instead: str) -> WriterRow:
    """Functions that are not translated, and what to write instead."""
    return dialects, names, partial(refused, instead=instead)


def by_dialect(rows: Iterable[WriterRow]) -> dict[str, dict[str, Writer]]:
    """The writers by dialect and name."""
    found: dict[str, dict[str, Writer]] = {}
    for dialects, names, writer in rows:
        for dialect in dialects.split():
            found.setdefault(dialect, {}).update(dict.fromkeys(names.split(), writer))
    return found
