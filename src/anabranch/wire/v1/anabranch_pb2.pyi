# ruff: noqa: A002, I001, RUF023, RUF100, UP007, UP045
# fmt: off
# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Place(_message.Message):
    __slots__ = ("text", "time_us")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    text: str
    time_us: int
    def __init__(self, text: _Optional[str] = ..., time_us: _Optional[int] = ...) -> None: ...

class AppendCommand(_message.Message):
    __slots__ = ("stream", "producer", "epoch", "fence", "byte_fence", "stream_id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    BYTE_FENCE_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    stream: str
    producer: str
    epoch: int
    fence: int
    byte_fence: int
    stream_id: int
    def __init__(self, stream: _Optional[str] = ..., producer: _Optional[str] = ..., epoch: _Optional[int] = ..., fence: _Optional[int] = ..., byte_fence: _Optional[int] = ..., stream_id: _Optional[int] = ...) -> None: ...

class AppendOpened(_message.Message):
    __slots__ = ("stream_id", "epoch", "last_sequence", "error")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    epoch: int
    last_sequence: int
    error: str
    def __init__(self, stream_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class AppendMetadata(_message.Message):
    __slots__ = ("sequence", "atomic", "expected", "note_time_us", "forget")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    NOTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    atomic: bool
    expected: int
    note_time_us: int
    forget: bool
    def __init__(self, sequence: _Optional[int] = ..., atomic: _Optional[bool] = ..., expected: _Optional[int] = ..., note_time_us: _Optional[int] = ..., forget: _Optional[bool] = ...) -> None: ...

class AppendedRange(_message.Message):
    __slots__ = ("segment", "start", "count")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    segment: int
    start: int
    count: int
    def __init__(self, segment: _Optional[int] = ..., start: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class AppendAnswer(_message.Message):
    __slots__ = ("sequence", "ranges", "duplicate", "error", "range_of_row", "ending", "weight", "kept_rows")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RANGE_OF_ROW_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    KEPT_ROWS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    ranges: _containers.RepeatedCompositeFieldContainer[AppendedRange]
    duplicate: bool
    error: str
    range_of_row: bytes
    ending: bool
    weight: float
    kept_rows: bytes
    def __init__(self, sequence: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[AppendedRange, _Mapping]]] = ..., duplicate: _Optional[bool] = ..., error: _Optional[str] = ..., range_of_row: _Optional[bytes] = ..., ending: _Optional[bool] = ..., weight: _Optional[float] = ..., kept_rows: _Optional[bytes] = ...) -> None: ...

class ReadCommand(_message.Message):
    __slots__ = ("stream", "start", "end", "follow", "columns", "no_columns", "not_before", "before", "by", "batch_rows", "compact", "skip_truncated", "events_per_s", "bytes_per_s", "stream_id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    NO_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    SKIP_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    stream: str
    start: Place
    end: Place
    follow: bool
    columns: _containers.RepeatedScalarFieldContainer[str]
    no_columns: bool
    not_before: Place
    before: Place
    by: str
    batch_rows: int
    compact: bool
    skip_truncated: bool
    events_per_s: float
    bytes_per_s: float
    stream_id: int
    def __init__(self, stream: _Optional[str] = ..., start: _Optional[_Union[Place, _Mapping]] = ..., end: _Optional[_Union[Place, _Mapping]] = ..., follow: _Optional[bool] = ..., columns: _Optional[_Iterable[str]] = ..., no_columns: _Optional[bool] = ..., not_before: _Optional[_Union[Place, _Mapping]] = ..., before: _Optional[_Union[Place, _Mapping]] = ..., by: _Optional[str] = ..., batch_rows: _Optional[int] = ..., compact: _Optional[bool] = ..., skip_truncated: _Optional[bool] = ..., events_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ..., stream_id: _Optional[int] = ...) -> None: ...

class BatchMetadata(_message.Message):
    __slots__ = ("position", "end", "skipped", "at_tail", "runs")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    AT_TAIL_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    position: str
    end: str
    skipped: int
    at_tail: bool
    runs: _containers.RepeatedCompositeFieldContainer[RowRun]
    def __init__(self, position: _Optional[str] = ..., end: _Optional[str] = ..., skipped: _Optional[int] = ..., at_tail: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[RowRun, _Mapping]]] = ...) -> None: ...

class RowRun(_message.Message):
    __slots__ = ("rows", "segment", "first", "stop", "appended_us", "appended_times", "offsets", "position")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    APPENDED_US_FIELD_NUMBER: _ClassVar[int]
    APPENDED_TIMES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    rows: int
    segment: int
    first: int
    stop: int
    appended_us: int
    appended_times: bytes
    offsets: bytes
    position: str
    def __init__(self, rows: _Optional[int] = ..., segment: _Optional[int] = ..., first: _Optional[int] = ..., stop: _Optional[int] = ..., appended_us: _Optional[int] = ..., appended_times: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., position: _Optional[str] = ...) -> None: ...

class RangeReadCommand(_message.Message):
    __slots__ = ("stream_id", "segment", "start", "stop", "columns", "no_columns")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    NO_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    segment: int
    start: int
    stop: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    no_columns: bool
    def __init__(self, stream_id: _Optional[int] = ..., segment: _Optional[int] = ..., start: _Optional[int] = ..., stop: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., no_columns: _Optional[bool] = ...) -> None: ...

class ByteReadCommand(_message.Message):
    __slots__ = ("stream_id", "position")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    stream_id: int
    position: int
    def __init__(self, stream_id: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class DescribeCommand(_message.Message):
    __slots__ = ("stream", "stream_id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    stream: str
    stream_id: int
    def __init__(self, stream: _Optional[str] = ..., stream_id: _Optional[int] = ...) -> None: ...

class StreamDescription(_message.Message):
    __slots__ = ("id", "name", "columns", "key", "time", "raw", "schema_version", "sealed", "event_bytes_max", "byte_stream")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    EVENT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTE_STREAM_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    columns: bytes
    key: str
    time: str
    raw: bool
    schema_version: int
    sealed: bool
    event_bytes_max: int
    byte_stream: bool
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., columns: _Optional[bytes] = ..., key: _Optional[str] = ..., time: _Optional[str] = ..., raw: _Optional[bool] = ..., schema_version: _Optional[int] = ..., sealed: _Optional[bool] = ..., event_bytes_max: _Optional[int] = ..., byte_stream: _Optional[bool] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("verb", "arguments")
    VERB_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    verb: str
    arguments: str
    def __init__(self, verb: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class CallAnswer(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...
