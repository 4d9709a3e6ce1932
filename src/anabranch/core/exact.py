"""Casts of Arrow columns that preserve every value.

Arrow's own safe casts round decimals to floats and floats to decimals, cut times to dates, accept any number as a
boolean, and drop fields of structs.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from itertools import starmap
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.type_widening import cut_times, wider
from anabranch.errors import InvalidArgument
from anabranch.model.columns import plain_type
from anabranch.model.times import DEFAULT_RULES, UNITS_NS, TimeRules, check_unit, is_plausible, precision_error

# By the width of a float in bits: all integers up to this one are exact.
EXACT_INTEGERS: Final = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}
_PLAUSIBLE_US: Final = (limits.TIME_PLAUSIBLE_MIN_US, limits.TIME_PLAUSIBLE_MAX_US)


def cast(column: pa.ChunkedArray, kind: pa.DataType, rules: TimeRules = DEFAULT_RULES) -> pa.ChunkedArray:
    """The column as `kind`. `rules` say how times without a zone, and digits beyond µs, are handled. Raises
    InvalidArgument for a value that would be changed, and pa.ArrowInvalid and pa.ArrowNotImplementedError if no such
    cast exists."""
    source, types = column.type, pa.types
    if source == kind:
        return column
    if types.is_dictionary(source):
        return cast(column.cast(source.value_type), kind, rules)
    if types.is_timestamp(kind) and types.is_timestamp(source):
        return _timestamps(column, kind, rules)
    if types.is_timestamp(kind) and types.is_integer(source):
        _check_units(column, rules)
    if types.is_nested(kind):
        _check_within(source, kind, rules)
        _check_units_within(column, kind, rules)
    found = column.cast(kind)
    if types.is_floating(kind) and _is_text(source):
        _check_numbers(column, found)
    elif not _keeps_all(source, kind):
        _check_round_trip(column, found)
    return found


def may_be_rounded(column: pa.ChunkedArray) -> bool:
    """True for floats, or a column that contains any, if some are so large that integers may have been rounded to
    them."""
    kind = column.type
    if pa.types.is_floating(kind):
        edges = pc.min_max(column).as_py()  # NaN is left out
        limit = float(EXACT_INTEGERS[kind.bit_width])
        return any(edge is not None and abs(edge) >= limit for edge in edges.values())
    if pa.types.is_list(kind):
        return may_be_rounded(pc.list_flatten(column))
    if pa.types.is_struct(kind):
        return any(may_be_rounded(pc.struct_field(column, [i])) for i in range(kind.num_fields))
    return False


def rounded_rows(floats: pa.ChunkedArray) -> pa.ChunkedArray:
    """A boolean mask of the floats that are so large that integers may have been rounded to them, including the
    infinities."""
    return pc.fill_null(
        pc.greater_equal(pc.abs(floats.cast(pa.float64())), float(EXACT_INTEGERS[floats.type.bit_width])), False
    )


def changed_number(text: str, value: float) -> bool:
    """True if parsing the text changed the number: an integer was rounded, or a finite number became infinite. Text
    with a fraction or an exponent denotes the nearest float."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False  # inf, nan: unchanged
    if not number.is_finite():
        return False
    if value in (float("inf"), float("-inf")):
        return True
    return number == number.to_integral_value() and text.strip().lstrip("+-").isdigit() and int(number) != int(value)


def _timestamps(column: pa.ChunkedArray, kind: pa.DataType, rules: TimeRules) -> pa.ChunkedArray:
    if not rules.truncate and UNITS_NS[column.type.unit] < UNITS_NS[kind.unit]:
        _refuse_finer(column, kind)
    try:
        found = cut_times(column, kind.unit).cast(pa.timestamp(kind.unit, column.type.tz))
    except pa.ArrowInvalid as exc:
        raise InvalidArgument(f"a time is out of the range of {kind}: {exc}") from exc
    if found.type.tz is None and kind.tz is not None and found.null_count < len(found):
        try:
            found = pc.assume_timezone(found, rules.zone_for_naive())
        except pa.ArrowInvalid as exc:
            raise InvalidArgument(f"a time without a zone is skipped or repeated by a clock change: {exc}") from exc
    return found.cast(kind)


def _refuse_finer(column: pa.ChunkedArray, kind: pa.DataType) -> None:
    fine = pc.not_equal(cut_times(column, kind.unit).cast(column.type), column)
    if (row := pc.index(fine, True).as_py()) >= 0:
        raise precision_error(pc.cast(column.slice(row, 1), pa.string())[0].as_py())


def _check_units(column: pa.ChunkedArray, rules: TimeRules) -> None:
    """Apply `check_unit` to the first value that looks like another unit than µs."""
    edges = pc.min_max(column).as_py()
    if edges["min"] is None or all(map(is_plausible, edges.values())):
        return
    for unit in UNITS_NS:
        # Plausible times of the four units are far apart, so no value of another unit lies between these edges.
        low, high = (edge * 1_000 // UNITS_NS[unit] for edge in _PLAUSIBLE_US)
        if unit == "us" or edges["min"] >= high or edges["max"] < low:
            continue
        implausible = pc.and_(pc.greater_equal(column, low), pc.less(column, high))
        if (row := pc.index(pc.fill_null(implausible, False), True).as_py()) >= 0:
            check_unit(column[row].as_py(), rules)


def _check_units_within(column: pa.ChunkedArray, kind: pa.DataType, rules: TimeRules) -> None:
    """Apply `_check_units` to the integers inside nested values that become times."""
    source, types = column.type, pa.types
    if not has_times(kind) or types.is_timestamp(source):
        return
    if types.is_timestamp(kind):
        if types.is_integer(source):
            _check_units(column, rules)
    elif types.is_struct(source) and types.is_struct(kind):
        for number, field in enumerate(source):
            within = [chunk.flatten()[number] for chunk in column.chunks]
            _check_units_within(pa.chunked_array(within, field.type), kind.field(field.name).type, rules)
    elif types.is_map(source) and types.is_map(kind):
        keys, items = _keys_and_items(column)
        _check_units_within(keys, kind.key_type, rules)
        _check_units_within(items, kind.item_type, rules)
    elif hasattr(source, "value_type") and types.is_list(kind):
        within = [chunk.flatten() for chunk in column.chunks]
        _check_units_within(pa.chunked_array(within, source.value_type), kind.value_type, rules)


def _keys_and_items(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """All keys of a column of maps, and all items."""
    entries = [_entries(chunk) for chunk in column.chunks]
    keys, items = ([each[side] for each in entries] for side in (0, 1))
    return pa.chunked_array(keys, column.type.key_type), pa.chunked_array(items, column.type.item_type)


def _entries(maps: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """The keys and the items of all maps of an array, which may be a slice."""
    maps = maps.drop_null()
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    return maps.keys.slice(first, last - first), maps.items.slice(first, last - first)


def has_times(kind: pa.DataType) -> bool:
    """True for a timestamp, and for a type that contains one."""
    return pa.types.is_timestamp(kind) or any(has_times(kind.field(i).type) for i in range(kind.num_fields))


def _check_within(source: pa.DataType, kind: pa.DataType, rules: TimeRules) -> None:
    """Refuse nested columns with other fields, and check times without a zone inside them, which Arrow interprets as
    UTC."""
    types = pa.types
    if types.is_struct(source) and types.is_struct(kind):
        for field in source:
            if kind.get_field_index(field.name) < 0:
                raise InvalidArgument(f"unknown field '{field.name}'")
            _check_within(field.type, kind.field(field.name).type, rules)
    elif types.is_map(source) and types.is_map(kind):
        _check_within(source.key_type, kind.key_type, rules)
        _check_within(source.item_type, kind.item_type, rules)
    elif hasattr(source, "value_type") and types.is_list(kind):
        _check_within(source.value_type, kind.value_type, rules)
    elif _is_naive(source) and types.is_timestamp(kind) and kind.tz is not None and rules.zone_for_naive() != "UTC":
        raise InvalidArgument("times without a zone inside lists, maps and structs are UTC: give them a zone first")


def _is_naive(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _keeps_all(source: pa.DataType, kind: pa.DataType) -> bool:
    """True if the types alone guarantee that nothing is lost, or Arrow refuses any loss."""
    types = pa.types
    if types.is_null(source) or types.is_string(kind) or types.is_binary(kind):
        return True  # numbers and times have exactly one text
    if _is_text(source):
        return True  # parsed entirely, or refused
    if types.is_date(source) and types.is_timestamp(kind):
        return True
    if types.is_nested(source) and types.is_nested(kind) and _keeps_all_within(source, kind):
        return True
    if not types.is_nested(source) and not types.is_timestamp(source) and plain_type(source) == kind:
        return True
    return bool(wider(source, kind) == kind)


def _keeps_all_within(source: pa.DataType, kind: pa.DataType) -> bool:
    """`_keeps_all` of all types inside nested ones. Lists that are all empty are lists of nulls to Arrow."""
    types = pa.types
    if source == kind or types.is_null(source):
        return True
    if types.is_struct(source) and types.is_struct(kind):
        return all(_keeps_all_within(field.type, kind.field(field.name).type) for field in source)
    if types.is_map(source) and types.is_map(kind):
        pairs = (source.key_type, kind.key_type), (source.item_type, kind.item_type)
        return all(_keeps_all_within(*each) for each in pairs)
    if hasattr(source, "value_type") and types.is_list(kind):
        return _keeps_all_within(source.value_type, kind.value_type)
    return not _is_text(source) and not types.is_nested(source) and _keeps_all(source, kind)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_numbers(texts: pa.ChunkedArray, floats: pa.ChunkedArray) -> None:
    if may_be_rounded(floats):
        suspects = rounded_rows(floats)
        texts = texts.cast(pa.large_string())  # Arrow can't filter a view
        for text, value in zip(texts.filter(suspects).to_pylist(), floats.filter(suspects).to_pylist(), strict=True):
            if changed_number(text, value):
                raise InvalidArgument(f"{text} would become {value!r}")


def _check_round_trip(column: pa.ChunkedArray, found: pa.ChunkedArray) -> None:
    try:
        back = found.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise InvalidArgument(f"{column.type} can't be kept exactly as {found.type}") from exc
    if pa.types.is_nested(column.type):
        if not _is_same(column, back):
            raise InvalidArgument(f"some value of {column.type} can't be kept exactly as {found.type}")
    elif not column.equals(back) and (row := pc.index(_difference_mask(column, back), True).as_py()) >= 0:
        raise InvalidArgument(f"{column[row].as_py()} would become {found[row].as_py()}")


def _difference_mask(column: pa.ChunkedArray, back: pa.ChunkedArray) -> pa.ChunkedArray:
    """A mask of the rows that differ, for columns that are not nested. NaN equals NaN."""
    changed = pc.fill_null(pc.not_equal(column, back), False)
    if not pa.types.is_floating(column.type):
        return changed
    return pc.and_(changed, pc.invert(pc.fill_null(pc.and_(pc.is_nan(column), pc.is_nan(back)), False)))


def _is_same(column: pa.ChunkedArray, back: pa.ChunkedArray) -> bool:
    """True if no value of a column was changed by casts, which keep lengths and nulls. NaN equals NaN."""
    kind = column.type
    if column.equals(back):
        return True
    if pa.types.is_struct(kind):
        return all(_is_same(*(pc.struct_field(each, [i]) for each in (column, back))) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_same(pc.list_flatten(column), pc.list_flatten(back))
    if pa.types.is_map(kind):
        return all(starmap(_is_same, zip(_keys_and_items(column), _keys_and_items(back), strict=True)))
    return bool(pa.types.is_floating(kind)) and not pc.any(_difference_mask(column, back)).as_py()


def narrow_limit(kind: pa.DataType) -> float | None:
    """The greatest finite value of a float type narrower than 64 bits; None for any other type."""
    if not pa.types.is_floating(kind) or kind.bit_width == 64:
        return None
    wide: Any = np.finfo(np.float32 if kind.bit_width == 32 else np.float16).max
    return float(wide)
