"""Values of the API survive the network, and what strangers send is refused by one clear error."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import limits
from anabranch.core.copy import CopiedRange, CopyResult, Filtered
from anabranch.errors import InvalidArgument
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW, StreamSchema
from anabranch.model.segment_range import Distance, RangesBetween, SegmentRange
from anabranch.model.stream_range import StreamRange
from anabranch.wire.hints import hints_of
from anabranch.wire.registry import NAMED, RECORDS
from anabranch.wire.values import Handle, from_json, parse_bytes, to_bytes, to_json

CUT = ab.StreamCut.of(StreamId(7), {SegmentId(0, 1): 5})

VALUES = [
    None,
    True,
    -3,
    2**80,
    1.5,
    float("inf"),
    "text",
    b"\x00\xff",
    [1, [2]],
    (1, (2, "a")),
    {"a": (1,), "b": None},
    {3: "x", SegmentId(0, 1): CUT},
    {"$type": "not a type"},
    frozenset({"a", "b"}),
    datetime(2026, 1, 2, tzinfo=UTC),
    timedelta(days=3),
    Decimal("1.20"),
    CUT,
    ab.HEAD,
    ab.EventPointer(StreamId(1), SegmentId(2, 3), 4),
    StreamName("iot", "raw"),
    StreamRange("iot/raw", start=CUT),
    RAW,
    StreamSchema.typed(pa.schema({"a": pa.int64(), "k": pa.string()}), "k"),
    pa.schema({"a": pa.list_(pa.int32())}),
    ab.RetainFor("7d") | ab.RetainConsumed("iot/group"),
    ab.ByByteRate("2MB"),
    ab.Fixed(3),
    RangesBetween(StreamId(1), CUT, CUT, (SegmentRange(SegmentId(0, 0), 1, 2, 3),)),
    Distance(1, 2),
    CopyResult(StreamId(1), StreamId(2), CUT, CUT, Filtered("a > 1", 3, 0, (CopiedRange(SegmentId(0, 0), 1, 2, 3),))),
    ab.Checkpoint("x", 5, {ab.StreamSegment(StreamId(1), SegmentId(0, 0)): 4}, frozenset({"r"})),  # type: ignore[arg-type]
    Handle("job", "abc", {"a": 1}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_a_value_comes_back_the_same(value: Any) -> None:
    found = from_json(parse_bytes(to_bytes(to_json(value))))
    assert found == value and type(found) is type(value)


def test_every_class_of_the_registry_has_types_that_can_be_checked() -> None:
    assert [each for each in RECORDS if not hints_of(each)] == []
    assert len(NAMED) == len({each.__name__ for each in NAMED.values()})


@pytest.mark.parametrize(
    "sent",
    [
        {"$type": 3},
        {"$type": "os.system"},
        {"$type": "StreamCut", "text": "no"},
        {"$type": "StreamCut"},
        {"$type": "Distance", "events": "3", "bytes": 1},
        {"$type": "Distance", "events": 3},
        {"$type": "Distance", "events": 3, "bytes": 1, "more": 2},
        {"$type": "Edge", "value": "middle"},
        {"$type": "bytes", "base64": "%%%"},
        {"$type": "ArrowSchema", "ipc": "AAAA"},
        {"$type": "KeyRange", "low": 5, "high": 1},
        {"$type": "Retention", "groups": [3]},
        {"$type": "map", "items": [[1]]},
        {"$type": "map", "items": [[[1], 2]]},
        {"$type": "datetime", "text": "yesterday"},
        {"$type": "decimal", "text": "one"},
        {"$type": "decimal", "text": "1" * 101},
        {"$type": "timedelta", "us": 10**30},
        2**200,
    ],
    ids=str,
)
def test_what_is_no_value_is_refused(sent: Any) -> None:
    with pytest.raises(InvalidArgument):
        from_json(sent)


def test_deep_and_large_json_is_refused() -> None:
    deep: Any = 1
    for _ in range(limits.WIRE_JSON_DEPTH_MAX + 2):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="nested deeper"):
        from_json(deep)
    with pytest.raises(InvalidArgument, match="expected JSON"):
        parse_bytes(b"[" * 100_000)
    with pytest.raises(InvalidArgument, match="over the limit"):
        parse_bytes(b" " * (limits.WIRE_JSON_BYTES_MAX + 1))
    for text in (b"nan", b"Infinity", b'{"a": 1, "a": 2}', b"\xff", b"1" * 5000, b""):
        with pytest.raises(InvalidArgument):
            parse_bytes(text)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
TYPES = st.sampled_from(
    sorted([*NAMED, "tuple", "map", "bytes", "float", "Handle", "StreamSchema", "Event", "datetime"])
)
MEMBERS = st.sampled_from(
    sorted({name for kind in RECORDS for name in hints_of(kind)} | {"text", "items", "value", "base64", "id", "kind"})
)
HOSTILE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(MEMBERS | st.text(max_size=5), inner, max_size=5)
        | st.builds(
            lambda kind, members: {"$type": kind, **members}, TYPES, st.dictionaries(MEMBERS, inner, max_size=4)
        )
    ),
    max_leaves=15,
)


@given(HOSTILE)
def test_anything_is_a_value_or_one_error(sent: Any) -> None:
    with suppress(InvalidArgument):
        to_json(from_json(sent))


@given(
    st.sampled_from(RECORDS).flatmap(
        lambda kind: st.fixed_dictionaries(
            {"$type": st.just(kind.__name__)}, optional=dict.fromkeys(hints_of(kind), HOSTILE)
        )
    )
)
def test_any_members_of_a_class_make_a_value_or_one_error(sent: Any) -> None:
    with suppress(InvalidArgument):
        from_json(sent)


@given(st.binary(max_size=200) | HOSTILE.map(lambda value: json.dumps(value).encode()[:-1]))
def test_any_bytes_are_json_or_one_error(data: bytes) -> None:
    with suppress(InvalidArgument):
        parse_bytes(data)
