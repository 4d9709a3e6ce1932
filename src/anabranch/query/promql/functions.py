"""Functions of the numbers of a vector, and functions that change its labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidSql
from anabranch.query.promql import syntax as ast
from anabranch.query.promql.metrics import matching_texts
from anabranch.query.promql.vectors import NAME, Floats, Labels, SeriesVector, merged

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_REFERENCE: Final = re.compile(r"\$(?:\$|\{(\w+)\}|(\w+))")
_DAY_S: Final = 86_400


def _round(values: Floats, unit: Floats) -> Floats:
    inverse = 1 / unit
    return np.floor(values * inverse + 0.5) / inverse


def _sign(values: Floats) -> Floats:
    return np.where(values > 0, 1.0, np.where(values < 0, -1.0, values))


NUMBER_FUNCTIONS: Final[dict[str, Callable[..., Floats]]] = {
    **{name: getattr(np, name) for name in ("abs", "ceil", "floor", "exp", "sqrt", "log2", "log10")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "ln": np.log,
    "deg": np.degrees,
    "rad": np.radians,
    "sgn": _sign,
    "round": lambda values, unit=1.0: _round(values, unit),
    "clamp_min": np.maximum,
    "clamp_max": np.minimum,
    "clamp": lambda values, least, most: np.maximum(least, np.minimum(most, values)),
}
"""Functions of a number and of scalars, by name."""


def _dates(values: Floats) -> Any:
    whole = np.trunc(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0))
    return np.clip(whole, -1e15, 1e15).astype(np.int64).astype("datetime64[s]")


def _part(unit: str, base: str) -> Callable[[Floats], Floats]:
    def found(values: Floats) -> Floats:
        dates = _dates(values)
        begun = dates.astype(f"datetime64[{base}]").astype(f"datetime64[{unit}]")
        return np.asarray(dates.astype(f"datetime64[{unit}]") - begun, np.float64)

    return found


def _days_in_month(values: Floats) -> Floats:
    month = _dates(values).astype("datetime64[M]")
    return np.asarray((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]"), np.float64)


TIME_FUNCTIONS: Final[dict[str, Callable[[Floats], Floats]]] = {
    "minute": _part("m", "h"),
    "hour": _part("h", "D"),
    "day_of_month": lambda values: _part("D", "M")(values) + 1,
    "day_of_year": lambda values: _part("D", "Y")(values) + 1,
    "day_of_week": lambda values: np.mod(np.floor(_dates(values).astype(np.int64) / _DAY_S) + 4, 7),
    "days_in_month": _days_in_month,
    "month": lambda values: _part("M", "Y")(values) + 1,
    "year": lambda values: _dates(values).astype("datetime64[Y]").astype(np.float64) + 1970,
}
"""Functions of a time in seconds, in UTC, by name."""


def sorted_rows(vector: SeriesVector, *, descending: bool) -> SeriesVector:
    """The rows in the order of their first values; NaN comes last."""
    values = vector.values[:, 0]
    order = np.lexsort((-values if descending else values, np.isnan(values)))
    return vector.taken(order.tolist())


def absent_labels(node: ast.PromNode) -> Labels:
    """The labels that a series would have if it were there: those that must be equal to one text."""
    if not isinstance(node, ast.Selector):
        return {}
    found: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in node.matchers:
        if matcher.label == NAME:
            continue
        if matcher.operator == "=" and matcher.label not in seen:
            found[matcher.label] = matcher.value
        else:
            found.pop(matcher.label, None)
        seen.add(matcher.label)
    return {name: value for name, value in found.items() if value}


def label_replaced(vector: SeriesVector, arguments: Sequence[str]) -> SeriesVector:
    """`label_replace(vector, target, replacement, source, pattern)`. Raises InvalidSql."""
    target, replacement, source, pattern = arguments
    _check_label(target, "destination", "label_replace")
    texts = [labels.get(source, "") for labels in vector.labels]
    try:
        hits = matching_texts(pattern, texts)
    except InvalidSql as exc:
        raise InvalidSql(f"invalid regular expression in label_replace(): {pattern:.80}") from exc
    template = _template(replacement, pattern)
    changed = pc.replace_substring_regex(pa.array(texts, pa.string()), f"^(?:{pattern})$", template, max_replacements=1)
    rows = zip(vector.labels, hits, changed.to_pylist(), strict=True)
    labels = [_with_label(each, target, text) if hit else each for each, hit, text in rows]
    return _relabelled(vector, labels)


def label_joined(vector: SeriesVector, arguments: Sequence[str]) -> SeriesVector:
    """`label_join(vector, target, separator, sources …)`. Raises InvalidSql."""
    target, separator, *sources = arguments
    for source in sources:
        _check_label(source, "source", "label_join")
    _check_label(target, "destination", "label_join")
    labels = [
        _with_label(each, target, separator.join(each.get(source, "") for source in sources)) for each in vector.labels
    ]
    return _relabelled(vector, labels)


def _relabelled(vector: SeriesVector, labels: list[Labels]) -> SeriesVector:
    return merged(SeriesVector(labels, vector.values, vector.present))


def _with_label(labels: Labels, name: str, text: str) -> Labels:
    rest = {key: value for key, value in labels.items() if key != name}
    return {**rest, name: text} if text else rest


def _check_label(name: str, which: str, function: str) -> None:
    if not _LABEL.fullmatch(name):
        raise InvalidSql(f"invalid {which} label name in {function}(): {name:.80}")


def _template(replacement: str, pattern: str) -> str:
    """Go's `$1` and `${name}` as RE2's `\\1`. A group that there is not is the empty text."""
    groups = _groups(pattern)
    count = groups.pop("", 0)
    if count > 9 and "$" in replacement:
        raise InvalidSql("label_replace() with more than 9 groups in its regular expression is not supported")

    def reference(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 4 else groups.get(name, -1)
        return f"\\{number}" if 0 <= number <= count else ""

    return _REFERENCE.sub(reference, replacement.replace("\\", "\\\\"))


def _groups(pattern: str) -> dict[str, int]:
    """The numbers of the named groups of a pattern; the number of all groups under the empty name."""
    found, count = {}, 0
    for opened in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?P?<(\w+)>", pattern, re.DOTALL):
        if opened[0].startswith("("):
            count += 1
            if opened[1]:
                found[opened[1]] = count
    return {**found, "": count}
