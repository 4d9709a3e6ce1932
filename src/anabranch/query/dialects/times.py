"""Functions of times: sums, differences, conversions from and to epochs, and texts.

A difference counts elapsed whole units or the boundaries crossed, as in the dialect. Differences in whole months and years are
refused: the systems disagree on when a month that starts on the 31st ends. A date becomes the time of its midnight."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Final

from sqlglot import exp

from anabranch.query.dialects.calls import IS_TIME, Conversion, NotTranslated, WriterRow, WrittenCall, refused_in
from anabranch.query.dialects.kinds import overwrite
from anabranch.query.dialects.time_formats import pattern

UNITS: Final = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_US: Final = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_WHOLE: Final = frozenset(UNITS) - _MONTHS.keys()
_ALL: Final = frozenset(UNITS)
_UP_TO_A_DAY: Final = _WHOLE - {"week"}
_SHORT: Final = {
    "azure": (
        "year yy yyyy, quarter qq q, month mm m, day dd d dayofyear dy y, week wk ww, hour hh, minute mi n, second ss s, "
        "millisecond ms, microsecond mcs"
    ),
    "snowflake": (
        "year y yy yyy yyyy yr years, quarter q qtr qtrs quarters, month mm mon mons months, day d dd days, "
        "week w wk weeks, hour h hh hr hours hrs, minute m mi min minutes mins, second s sec seconds secs, "
        "millisecond ms msec milliseconds, microsecond us usec microseconds"
    ),
    "ksqldb": "day days, hour hours, minute minutes, second seconds, millisecond milliseconds",
}
_NAMES: Final = {
    dialect: {short: words.split()[0] for words in text.split(",") for short in words.split()}
    for dialect, text in _SHORT.items()
}
"""For each dialect with names of its own for units: the unit by name."""
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?Z?)?)?")


def _unit(call: WrittenCall, at: int, allowed: frozenset[str]) -> str:
    word = call.word(at)
    unit = _NAMES.get(call.dialect, {each: each for each in UNITS}).get(word)
    if unit not in allowed:
        shown = ", ".join(each for each in UNITS if each in allowed)
        raise NotTranslated(f"{call.name} in units of {word} is not translated; use one of {shown}")
    return unit


def _time(call: WrittenCall, at: int) -> str:
    """An argument that is a time, or a constant text of one."""
    node = call.arguments[at]
    if not node.is_string:
        return call.sql(at)
    if not _ISO.fullmatch(node.name):
        raise NotTranslated(f"'{node.name}' is not read as a time; write it like '2026-01-31 12:00:00'")
    return f"CAST({call.quoted(node.name)} AS {call.either('TIMESTAMPTZ', 'TIMESTAMP')})"


# Sums


def _sum(call: WrittenCall, unit: str, number: int, time: int, *, minus: bool = False) -> str:
    """The sum of a time and a number of units; `time` and `number` are the indexes of their arguments."""
    sign = "-" if minus else ""
    known, base = call.whole(number), _time(call, time)
    if known is not None:
        count = str(-known if minus else known)
        amount = f"INTERVAL ({count}) {unit.upper()}" if unit != "quarter" else f"INTERVAL ({3 * int(count)}) MONTH"
        return call.either(f"({base} + {amount})", f"timestampadd({unit.upper()}, {count}, {base})")
    count = call.sql(number)
    if call.dialect == "snowflake":  # fractions are rounded
        count = call.either(f"CAST(round({count}) AS BIGINT)", f"round({count})")
    elif call.dialect == "azure":  # fractions are cut off
        count = call.either(f"CAST(trunc({count}) AS BIGINT)", count)
    return call.either(
        f"({base} + {_amount(unit, sign + count)})", f"timestampadd({unit.upper()}, {sign}{count}, {base})"
    )


def _amount(unit: str, count: str) -> str:
    """An interval in DuckDB. A `count` with a fraction makes the query fail: these functions take integers only."""
    if unit in _US:
        return f"to_microseconds({count} * CAST({_US[unit]} AS BIGINT))"
    if unit in _MONTHS:
        return f"to_months({count} * {_MONTHS[unit]})"
    return f"to_{unit}s({count})"


def _add(call: WrittenCall, *, allowed: frozenset[str], minus: bool = False) -> str:
    """`TIMESTAMPADD(DAY, n, t)`."""
    call.expect(3, example=f"{call.name}(DAY, n, t)")
    return _sum(call, _unit(call, 0, allowed), 1, 2, minus=minus)


def _add_interval(call: WrittenCall, *, allowed: frozenset[str], minus: bool = False) -> str:
    """`TIMESTAMP_ADD(t, INTERVAL n DAY)`."""
    example = f"{call.name}(t, INTERVAL n DAY)"
    call.expect(2, example=example)
    interval = call.arguments[1]
    if not isinstance(interval, exp.Interval) or interval.this is None or not isinstance(interval.unit, exp.Var):
        raise NotTranslated(f"this interval is not translated; write {example}")
    number = interval.this
    if number.is_string:  # the parser makes a string of a number too
        number = exp.Literal.number(number.name)
    parts = replace(call, arguments=[interval.unit, number, call.arguments[0]])
    return _sum(parts, _unit(parts, 0, allowed), 1, 2, minus=minus)


# Differences


def _whole_units(call: WrittenCall, unit: str, start: str, end: str, *, of_milliseconds: bool) -> str:
    if of_milliseconds:  # truncate both times to milliseconds first
        start, end = (_truncated(call, "millisecond", each) for each in (start, end))
    return call.either(f"date_sub('{unit}', {start}, {end})", f"timestampdiff({unit.upper()}, {start}, {end})")


def _truncated(call: WrittenCall, unit: str, time: str) -> str:
    return f"date_trunc('{call.either(unit, unit.upper())}', {time})"


def _whole_difference(call: WrittenCall, *, allowed: frozenset[str]) -> str:
    """`TIMESTAMPDIFF(DAY, start, end)`."""
    call.expect(3, example=f"{call.name}(DAY, start, end)")
    if (word := call.word(0)) in _MONTHS:
        raise NotTranslated(
            f"{call.name} in whole {word}s differs at the ends of months; use days, or EXTRACT of both times"
        )
    return _whole_units(call, _unit(call, 0, allowed), _time(call, 1), _time(call, 2), of_milliseconds=True)


def _timestamp_diff(call: WrittenCall) -> str:
    """`TIMESTAMP_DIFF(end, start, DAY)`."""
    call.expect(3, example=f"{call.name}(end, start, DAY)")
    unit = _unit(call, 2, _UP_TO_A_DAY)
    return _whole_units(call, unit, _time(call, 1), _time(call, 0), of_milliseconds=False)


def _boundaries(call: WrittenCall) -> str:
    """`DATEDIFF(DAY, start, end)`."""
    call.expect(3, example=f"{call.name}(DAY, start, end)")
    unit = _unit(call, 0, _ALL - {"week"})
    start, end = _time(call, 1), _time(call, 2)
    begins = [_truncated(call, unit, each) for each in (start, end)] if unit != "microsecond" else [start, end]
    return call.either(f"date_diff('{unit}', {start}, {end})", f"timestampdiff({unit.upper()}, {', '.join(begins)})")


# Epochs


def _of_epoch(call: WrittenCall, *, us: int) -> str:
    """The time that is a whole number of units after 1970; a unit is `us` long, in µs."""
    call.expect(1, example=f"{call.name}(n)")
    if IS_TIME in call.arguments[0].meta:
        return call.sql(0)
    return _time_of(call, us)


def _time_of(call: WrittenCall, us: int) -> str:
    count = call.sql(0) if us == 1 else f"{call.sql(0)} * CAST({us} AS BIGINT)"
    return call.either(f"make_timestamptz({count})", f"timestamp_micros({count})")


def _in_epoch(call: WrittenCall, *, us: int) -> str:
    """The number of units since 1970, rounded down."""
    call.expect(1, example=f"{call.name}(t)")
    if us == 1:
        return _micros(call)
    duckdb, spark = {1_000: ("millisecond", "unix_millis"), 1_000_000: ("second", "unix_seconds")}[us]
    return call.either(f"(epoch_us({_truncated(call, duckdb, call.sql(0))}) // {us})", f"{spark}({call.sql(0)})")


def _micros(call: WrittenCall) -> str:
    return f"{call.either('epoch_us', 'unix_micros')}({call.sql(0)})"


def _to_unixtime(call: WrittenCall) -> str:
    call.expect(1, example=f"{call.name}(t)")
    return f"({_micros(call)} / CAST(1000000 AS DOUBLE))"


def write_seconds_since_1970(node: exp.Extract, to: Conversion) -> None:
    """`EXTRACT(EPOCH FROM t)`, as a decimal number with its microseconds, and `EXTRACT(EPOCH FROM b - a)`."""
    value = node.expression.unnest()
    times = [value.this, value.expression] if isinstance(value, exp.Sub) else [value]
    call = WrittenCall(to.dialect, to.pipeline, "EXTRACT", times)
    micros = " - ".join(f"{call.either('epoch_us', 'unix_micros')}({_time(call, at)})" for at in range(len(times)))
    overwrite(node, f"(({micros}) * CAST(0.000001 AS DECIMAL(7, 6)))")


def _of_epoch_of_scale(call: WrittenCall, *, scales: dict[int, int]) -> str:
    """`TO_TIMESTAMP(n, 3)`: with a scale of 3, n is in milliseconds."""
    call.expect(2, example=f"{call.name}(n, 3), where 3 is of milliseconds and 0 of seconds")
    scale = call.whole(1)
    if scale not in scales:
        shown = " or ".join(map(str, scales))
        raise NotTranslated(
            f"{call.name} of a text is not translated; write CAST(x AS TIMESTAMP), or a scale of {shown}"
        )
    return _time_of(call, scales[scale])


def _unix_timestamp(call: WrittenCall) -> str:
    """`UNIX_TIMESTAMP(t)`, which is in milliseconds in ksqlDB."""
    if not call.arguments:
        raise NotTranslated(f"{call.name}() without a time is not translated; pass one")
    return _in_epoch(call, us=1_000)


# Parts


def _part(call: WrittenCall) -> str:
    """`HOUR(t)`. Parts are named alike in DuckDB and in Spark. Seconds are whole."""
    call.expect(1, example=f"{call.name}(t)")
    part = "day" if call.name in ("DAYOFMONTH", "DAY_OF_MONTH") else call.name.lower()
    return f"{part}({_time(call, 0)})"


def _date(call: WrittenCall) -> str:
    call.expect(1, example=f"{call.name}(t)")
    return f"CAST({_time(call, 0)} AS DATE)"


# Texts


def _formatted(call: WrittenCall, time: str, format_: int) -> str:
    written = pattern(call.text(format_, what="a format"), call.name, call.dialect, spark=call.pipeline)
    literal = call.quoted(written)
    return call.either(f"strftime({time}, {literal})", f"date_format({time}, {literal})")


def _check_zone(call: WrittenCall, at: int) -> None:
    if len(call.arguments) > at and call.text(at, what="a time zone").upper() not in ("UTC", "Z"):
        raise NotTranslated(f"{call.name} in a time zone is not translated; leave it out: times are in UTC")


def _format(call: WrittenCall, *, zone: bool = False) -> str:
    """`DATE_FORMAT(t, format[, zone])`."""
    call.expect(2, 3 if zone else 2, example=f"{call.name}(t, format)")
    _check_zone(call, 2)
    return _formatted(call, _time(call, 0), 1)


def _format_first(call: WrittenCall) -> str:
    """`FORMAT_TIMESTAMP(format, t[, zone])`."""
    call.expect(2, 3, example=f"{call.name}(format, t)")
    _check_zone(call, 2)
    return _formatted(call, _time(call, 1), 0)


def _from_unixtime(call: WrittenCall) -> str:
    """`FROM_UNIXTIME(n[, format])`: in Flink, the text of a time in seconds since 1970."""
    call.expect(1, 2, example=f"{call.name}(n, format)")
    with_format = replace(call, arguments=[*call.arguments, exp.Literal.string("yyyy-MM-dd HH:mm:ss")])
    return _formatted(with_format, _time_of(call, 1_000_000), 1)


def _timestamp_to_string(call: WrittenCall) -> str:
    """The text of a time in milliseconds since 1970, or of the bound of a window."""
    call.expect(2, 3, example=f"{call.name}(n, format)")
    _check_zone(call, 2)
    time = call.sql(0) if IS_TIME in call.arguments[0].meta else _time_of(call, 1_000)
    return _formatted(call, time, 1)


_KSQLDB: Final = _UP_TO_A_DAY - {"microsecond"}
_SCALES: Final = {0: 1_000_000, 3: 1_000, 6: 1}

TIMES: Final[tuple[WriterRow, ...]] = (
    ("flink", "TIMESTAMPADD", partial(_add, allowed=_ALL - {"microsecond", "millisecond"})),
    ("flink", "TIMESTAMPDIFF", partial(_whole_difference, allowed=_WHOLE - {"microsecond", "millisecond"})),
    ("flink", "TO_TIMESTAMP_LTZ", partial(_of_epoch_of_scale, scales={0: 1_000_000, 3: 1_000})),
    ("flink", "FROM_UNIXTIME", _from_unixtime),
    ("flink", "DATE_FORMAT", _format),
    refused_in("flink", "TO_TIMESTAMP", instead="CAST(x AS TIMESTAMP)"),
    refused_in("flink", "UNIX_TIMESTAMP", instead="TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', t)"),
    ("flink snowflake", "YEAR QUARTER MONTH DAYOFMONTH HOUR MINUTE SECOND", _part),
    ("snowflake", "DAY", _part),
    ("trino", "YEAR QUARTER MONTH DAY DAY_OF_MONTH HOUR MINUTE SECOND", _part),
    ("azure", "YEAR MONTH DAY", _part),
    ("bigquery trino", "DATE", _date),
    ("ksqldb", "TIMESTAMPADD", partial(_add, allowed=_KSQLDB)),
    ("ksqldb", "TIMESTAMPSUB", partial(_add, allowed=_KSQLDB, minus=True)),
    ("ksqldb", "FROM_UNIXTIME", partial(_of_epoch, us=1_000)),
    ("ksqldb", "UNIX_TIMESTAMP", _unix_timestamp),
    ("ksqldb", "FORMAT_TIMESTAMP", partial(_format, zone=True)),
    ("ksqldb", "FORMAT_DATE", _format),
    ("ksqldb", "TIMESTAMPTOSTRING", _timestamp_to_string),
    ("azure snowflake", "DATEADD", partial(_add, allowed=_ALL)),
    ("snowflake", "TIMEADD TIMESTAMPADD", partial(_add, allowed=_ALL)),
    ("azure snowflake", "DATEDIFF", _boundaries),
    ("snowflake", "TIMEDIFF TIMESTAMPDIFF", _boundaries),
    (
        "snowflake",
        "TO_TIMESTAMP TO_TIMESTAMP_NTZ TO_TIMESTAMP_LTZ TO_TIMESTAMP_TZ",
        partial(_of_epoch_of_scale, scales=_SCALES),
    ),
    ("snowflake", "TO_CHAR TO_VARCHAR", _format),
    ("bigquery", "TIMESTAMP_ADD", partial(_add_interval, allowed=_UP_TO_A_DAY)),
    ("bigquery", "TIMESTAMP_SUB", partial(_add_interval, allowed=_UP_TO_A_DAY, minus=True)),
    ("bigquery", "DATETIME_ADD", partial(_add_interval, allowed=_ALL)),
    ("bigquery", "DATETIME_SUB", partial(_add_interval, allowed=_ALL, minus=True)),
    ("bigquery", "TIMESTAMP_DIFF", _timestamp_diff),
    refused_in("bigquery", "DATETIME_DIFF DATE_DIFF", instead="TIMESTAMP_DIFF(end, start, DAY) of whole units"),
    refused_in("bigquery", "DATE_ADD", instead="a sum, such as at + INTERVAL 1 DAY"),
    refused_in("bigquery", "DATE_SUB", instead="a difference, such as at - INTERVAL 1 DAY"),
    ("bigquery", "TIMESTAMP_SECONDS", partial(_of_epoch, us=1_000_000)),
    ("bigquery", "TIMESTAMP_MILLIS", partial(_of_epoch, us=1_000)),
    ("bigquery", "TIMESTAMP_MICROS", partial(_of_epoch, us=1)),
    ("bigquery", "UNIX_SECONDS", partial(_in_epoch, us=1_000_000)),
    ("bigquery", "UNIX_MILLIS", partial(_in_epoch, us=1_000)),
    ("bigquery", "UNIX_MICROS", partial(_in_epoch, us=1)),
    ("bigquery", "FORMAT_TIMESTAMP", _format_first),
    ("bigquery", "FORMAT_DATETIME FORMAT_DATE", _format_first),
    ("trino", "DATE_ADD", partial(_add, allowed=_ALL - {"microsecond"})),
    ("trino", "DATE_DIFF", partial(_whole_difference, allowed=_WHOLE - {"microsecond"})),
    ("trino", "FROM_UNIXTIME", partial(_of_epoch, us=1_000_000)),
    ("trino", "TO_UNIXTIME", _to_unixtime),
    ("trino", "DATE_FORMAT FORMAT_DATETIME", _format),
    ("risingwave materialize", "TO_TIMESTAMP", partial(_of_epoch, us=1_000_000)),
    ("risingwave materialize", "TO_CHAR", _format),
)
