"""Operators between scalars and vectors, and the pairing of series by their labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from anabranch.errors import InvalidSql
from anabranch.query.promql import syntax as ast
from anabranch.query.promql.vectors import (
    NAME,
    Bools,
    Floats,
    Key,
    Labels,
    SeriesVector,
    key_of,
    merged,
    only,
    rows_by,
    without,
)

_ARITHMETIC: Final[dict[str, Callable[[Floats, Floats], Floats]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
_NAMELESS: Final = ("+", "-", "*", "/", "%", "^")  # Prometheus keeps the name for atan2
_COMPARISONS: Final[dict[str, Callable[[Floats, Floats], Bools]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
_SETS: Final = ("and", "or", "unless")


def combined(node: ast.BinaryNode, left: SeriesVector | Floats, right: SeriesVector | Floats) -> SeriesVector | Floats:
    """The result of an operator. Raises InvalidSql."""
    if node.operator not in (*_ARITHMETIC, *_COMPARISONS, *_SETS):
        raise InvalidSql(f"the operator {node.operator} is not supported")
    match left, right:
        case SeriesVector(), SeriesVector():
            if node.operator in _SETS:
                return _set_operation(node.operator, merged(left), merged(right), node.matching)
            return _match_series(node, merged(left), merged(right))
        case SeriesVector(), np.ndarray():
            return _with_scalar(node, left, left.values, right)
        case np.ndarray(), SeriesVector():
            return _with_scalar(node, right, left, right.values)
    assert isinstance(left, np.ndarray), "the other cases are above"
    assert isinstance(right, np.ndarray), "the other cases are above"
    return _numbers(node.operator, left, right)


def _numbers(operator: str, left: Floats, right: Floats) -> Floats:
    if operator in _ARITHMETIC:
        return _ARITHMETIC[operator](left, right)
    return _COMPARISONS[operator](left, right).astype(np.float64)


def _with_scalar(node: ast.BinaryNode, vector: SeriesVector, left: Floats, right: Floats) -> SeriesVector:
    if node.operator in _COMPARISONS and not node.numbers:
        kept = _COMPARISONS[node.operator](left, right)
        return merged(SeriesVector(vector.labels, vector.values, vector.present & kept))
    found = SeriesVector(vector.labels, _numbers(node.operator, left, right), vector.present)
    return found.without_name() if node.operator in _NAMELESS or node.numbers else found


def _signature(matching: ast.Matching, labels: Labels) -> Labels:
    return only(labels, matching.labels) if matching.on else without(labels, (*matching.labels, NAME))


def _set_operation(operator: str, left: SeriesVector, right: SeriesVector, matching: ast.Matching) -> SeriesVector:
    first, second = (left, right) if operator != "or" else (right, left)
    signature = partial(_signature, matching)
    there = {key: second.present[rows].any(axis=0) for key, rows in rows_by(second.labels, signature).items()}
    nowhere = np.zeros(first.present.shape[1], np.bool_)
    others = [there.get(key_of(signature(labels)), nowhere) for labels in first.labels]
    # `first` may have no series: the type and the shape of an empty list are not known.
    mask: Bools = np.array(others, np.bool_).reshape(first.present.shape)
    kept = SeriesVector(first.labels, first.values, first.present & (mask if operator == "and" else ~mask))
    if operator != "or":
        return merged(kept)
    values, present = np.vstack([left.values, kept.values]), np.vstack([left.present, kept.present])
    return merged(SeriesVector([*left.labels, *kept.labels], values, present))


def _match_series(node: ast.BinaryNode, left: SeriesVector, right: SeriesVector) -> SeriesVector:
    """Pairs each series of the many side (of the left side, if no side is) with the series of the other side that has
    the same signature."""
    matching = node.matching
    swapped = matching.many == "right"
    many, one = (right, left) if swapped else (left, right)
    # At times when a side is empty, Prometheus does not look for duplicates.
    used = many.present.any(axis=0) & one.present.any(axis=0)
    signature = partial(_signature, matching)
    groups = rows_by(one.labels, signature)
    for rows in groups.values():
        if len(rows) > 1 and (one.present[rows].sum(axis=0)[used] > 1).any():
            side = "left" if swapped else "right"
            raise InvalidSql(
                f"found duplicate series for the match group on the {side} hand-side of the operation: "
                f"{one.labels[rows[0]]}, {one.labels[rows[1]]};many-to-many matching not allowed: matching labels must be "
                "unique on one side"
            )
    signatures = [key_of(signature(labels)) for labels in many.labels]
    pairs = [(row, other) for row, key in enumerate(signatures) for other in groups.get(key, ())]
    if not pairs:
        return SeriesVector.empty(many.values.shape[1])
    rows_many, rows_one = [list(each) for each in zip(*pairs, strict=True)]
    first, second = (
        (one.values[rows_one], many.values[rows_many]) if swapped else (many.values[rows_many], one.values[rows_one])
    )
    present = many.present[rows_many] & one.present[rows_one]
    if node.operator in _COMPARISONS and not node.numbers:
        values, present = first, present & _COMPARISONS[node.operator](first, second)
    else:
        values = _numbers(node.operator, first, second)
    if matching.many is None:
        _check_single(signatures, rows_many, present)
    labels = [_result_labels(node, many.labels[row], one.labels[other]) for row, other in pairs]
    refusal = "multiple matches for labels: grouping labels must ensure unique matches"
    return merged(SeriesVector(labels, values, present), refusal)


def _check_single(signatures: list[Key], rows: list[int], present: Bools) -> None:
    seen: dict[Key, Bools] = {}
    for position, row in enumerate(rows):
        before = seen.get(signatures[row])
        if before is not None and (before & present[position]).any():
            raise InvalidSql(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            )
        seen[signatures[row]] = present[position] if before is None else before | present[position]


def _result_labels(node: ast.BinaryNode, many: Labels, one: Labels) -> Labels:
    matching = node.matching
    dropped = (NAME,) if node.operator in _NAMELESS or node.numbers else ()
    found = without(many, dropped)
    if matching.many is None:
        found = only(found, matching.labels) if matching.on else without(found, matching.labels)
    for name in matching.include:
        found = {**found, name: one[name]} if name in one else without(found, (name,))
    return found
