"""Functions of JSON in texts: the value at a constant path of members and indexes; null if the path has no value or the text is
no valid JSON. A number with a fraction is returned as the engine writes a DOUBLE."""

from __future__ import annotations

import re
from typing import Final

from anabranch.query.dialects.calls import NotTranslated, WriterRow, WrittenCall, refused_in

_STEP: Final = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d{1,9})\]|\[(['"])([A-Za-z_][A-Za-z0-9_ -]*)\3\]""")


def _steps(call: WrittenCall, path: str) -> list[str | int]:
    """The members and the indexes of a path such as `$.a.b[0]`."""
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path) and (found := _STEP.match(path, at)) is not None:
        member, index, _, quoted_member = found.groups()
        steps.append(int(index) if index is not None else member or quoted_member)
        at = found.end()
    if not path.startswith("$") or at < len(path) or not steps:
        raise NotTranslated(
            f"the path '{path:.80}' of {call.name} is not translated; write members and indexes, as $.a.b[0]"
        )
    return steps


def _value(call: WrittenCall) -> tuple[str, str]:
    """The text with JSON, and the path as a literal of the target."""
    call.expect(2, example=f"{call.name}(x, '$.a')")
    steps = _steps(call, call.text(1, what="a path"))
    member = "['{}']" if call.pipeline else '."{}"'
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else member.format(step) for step in steps)
    text = call.sql(0) if call.pipeline else f"TRY_CAST({call.sql(0)} AS JSON)"
    return text, call.quoted(path)


def _scalar(call: WrittenCall) -> str:
    """The string, number or boolean at a path, as a text; null for an object, an array or a null."""
    text, path = _value(call)
    kind = f"schema_of_variant(variant_get(try_parse_json({text}), {path}))"
    return call.either(
        f"(json_value({text}, {path}) ->> '$')",
        # Without the check of its type, an object or a null in an array would be returned as a text.
        f"CASE WHEN {kind} NOT RLIKE '^(ARRAY|OBJECT|VOID)' THEN get_json_object({text}, {path}) END",
    )


def _any(call: WrittenCall) -> str:
    """The value at a path, as a text: a string without quotes, any other value (also null) as its JSON."""
    text, path = _value(call)
    parsed = f"try_parse_json({text})"
    return call.either(
        f"CASE json_type({text}, {path}) WHEN 'VARCHAR' THEN {text} ->> {path} "
        f"ELSE CAST(json_extract({text}, {path}) AS VARCHAR) END",
        f"CASE WHEN is_variant_null(variant_get({parsed}, {path})) THEN 'null' "
        f"WHEN {parsed} IS NOT NULL THEN get_json_object({text}, {path}) END",
    )


JSON_TEXTS: Final[tuple[WriterRow, ...]] = (
    ("flink", "JSON_VALUE", _scalar),
    ("bigquery", "JSON_VALUE JSON_EXTRACT_SCALAR", _scalar),
    ("ksqldb", "EXTRACTJSONFIELD", _any),
    ("trino", "JSON_EXTRACT_SCALAR", _scalar),
    refused_in(
        "trino risingwave materialize",
        "JSON_VALUE",
        instead="json_extract_scalar(x, '$.a') in Trino, or a column of the stream",
    ),
)
