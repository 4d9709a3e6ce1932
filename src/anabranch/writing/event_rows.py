"""Lists of events as one batch, for an append of several events at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from anabranch.core.python_rows import RowChecker, payload_bytes, rows_to_batch
from anabranch.core.routing import check_key, key_text
from anabranch.errors import SchemaMismatch
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules, to_micros


def events_to_batch(events: Iterable[Any], schema: StreamSchema, now: Micros, rules: TimeRules) -> pa.RecordBatch:
    """The events, as `Writer.write` takes them one by one, as a batch of the stream's columns. Those of a raw stream are
    payloads, or mappings of `payload`, `key` and `time`; those without a time get `now`. Raises SchemaMismatch with the
    number of the first wrong event, InvalidKey."""
    if schema.raw:
        return rows_to_batch([_raw_row(event, now, rules) for event in events], schema)
    checker = RowChecker(schema, rules)
    rows = []
    for number, event in enumerate(events):
        try:
            rows.append(checker.checked(event))
        except SchemaMismatch as exc:
            raise SchemaMismatch(f"event {number}: {exc}", column=exc.column, row=number) from exc
    return rows_to_batch(rows, schema)


def _raw_row(event: Any, now: Micros, rules: TimeRules) -> dict[str, Any]:
    key, time, payload = None, None, event
    if isinstance(event, Mapping):
        if unknown := sorted(set(event) - {"payload", "key", "time"}, key=str):
            raise SchemaMismatch(f"expected payload, key and time in an event of a raw stream, got {unknown[0]!r:.100}")
        payload, key, time = event.get("payload"), event.get("key"), event.get("time")
    text = None if key is None else key_text(key)
    if text is not None:
        check_key(text)
    return {"payload": payload_bytes(payload), "key": text, "time": now if time is None else to_micros(time, rules)}
