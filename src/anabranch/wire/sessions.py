"""What brokers and their clients say to each other in sessions, besides text and numbers."""

from __future__ import annotations

from typing import Any

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamInfo
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.wire.fields import Fields


def check_consumer(consumer: str) -> str:
    """Return the unique id of a client if it is valid. Raises InvalidArgument."""
    if not (consumer.isalnum() and consumer.isascii() and len(consumer) <= limits.CONSUMER_CHARS_MAX):
        raise InvalidArgument(
            f"expected the client's id as 1 to {limits.CONSUMER_CHARS_MAX} letters and digits, got {consumer!r:.100}"
        )
    return consumer


def stream_fields(info: StreamInfo) -> dict[str, Any]:
    """What a client has to know of a stream, as JSON."""
    schema = info.schema
    names = {"stream": f"{info.id:016x}", "name": str(info.name)}
    return {**names, "key": schema.key, "time": schema.time, "raw": schema.raw}


def transaction_fields(info: TransactionInfo) -> dict[str, Any]:
    """A transaction's state as JSON."""
    return {
        "id": info.id,
        "state": info.state.value,
        "begun_at": info.begun_at,
        "expires_at": info.expires_at,
        "ended_at": info.ended_at,
        "events": {f"{stream:016x}": count for stream, count in info.events.items()},
        "reason": info.reason,
    }


def transaction_info(found: Any) -> TransactionInfo:
    """The inverse of `transaction_fields`. Raises InvalidArgument."""
    if not isinstance(found, dict) or not isinstance(found.get("events"), dict):
        raise InvalidArgument("expected the state of a transaction")
    fields = Fields(found)
    ended_at = fields.optional_count("ended_at")
    try:
        state = TransactionState(fields.text("state"))
        events = {StreamId(int(stream, 16)): int(count) for stream, count in found["events"].items()}
    except ValueError as exc:
        raise InvalidArgument(f"expected the state of a transaction: {exc}") from exc
    return TransactionInfo(
        fields.text("id"),
        state,
        Micros(fields.count("begun_at")),
        Micros(fields.count("expires_at")),
        None if ended_at is None else Micros(ended_at),
        events,
        fields.optional_text("reason"),
    )
