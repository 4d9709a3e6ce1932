# ruff: noqa: A002, I001, RUF023, RUF100, UP007, UP045
# fmt: off
# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("json", "payload", "key", "time_us", "pointer", "appended_us", "cut")
    JSON_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    POINTER_FIELD_NUMBER: _ClassVar[int]
    APPENDED_US_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    payload: bytes
    key: str
    time_us: int
    pointer: str
    appended_us: int
    cut: str
    def __init__(self, json: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., key: _Optional[str] = ..., time_us: _Optional[int] = ..., pointer: _Optional[str] = ..., appended_us: _Optional[int] = ..., cut: _Optional[str] = ...) -> None: ...

class ProducerNumber(_message.Message):
    __slots__ = ("id", "epoch", "sequence")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    sequence: int
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("stream", "events", "producer", "atomic")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    stream: str
    events: _containers.RepeatedCompositeFieldContainer[Event]
    producer: ProducerNumber
    atomic: bool
    def __init__(self, stream: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., producer: _Optional[_Union[ProducerNumber, _Mapping]] = ..., atomic: _Optional[bool] = ...) -> None: ...

class EventRange(_message.Message):
    __slots__ = ("segment", "start", "stop")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    segment: str
    start: int
    stop: int
    def __init__(self, segment: _Optional[str] = ..., start: _Optional[int] = ..., stop: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("events", "pointers", "ranges", "duplicate")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POINTERS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    events: int
    pointers: _containers.RepeatedScalarFieldContainer[str]
    ranges: _containers.RepeatedCompositeFieldContainer[EventRange]
    duplicate: bool
    def __init__(self, events: _Optional[int] = ..., pointers: _Optional[_Iterable[str]] = ..., ranges: _Optional[_Iterable[_Union[EventRange, _Mapping]]] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class AppendStreamRequest(_message.Message):
    __slots__ = ("append",)
    APPEND_FIELD_NUMBER: _ClassVar[int]
    append: AppendRequest
    def __init__(self, append: _Optional[_Union[AppendRequest, _Mapping]] = ...) -> None: ...

class AppendStreamResponse(_message.Message):
    __slots__ = ("append",)
    APPEND_FIELD_NUMBER: _ClassVar[int]
    append: AppendResponse
    def __init__(self, append: _Optional[_Union[AppendResponse, _Mapping]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("stream", "start", "end", "by", "limit", "columns", "not_before", "before", "meta", "events_per_s", "bytes_per_s")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    stream: str
    start: str
    end: str
    by: str
    limit: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    not_before: str
    before: str
    meta: bool
    events_per_s: float
    bytes_per_s: float
    def __init__(self, stream: _Optional[str] = ..., start: _Optional[str] = ..., end: _Optional[str] = ..., by: _Optional[str] = ..., limit: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., not_before: _Optional[str] = ..., before: _Optional[str] = ..., meta: _Optional[bool] = ..., events_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("events", "cut", "complete")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    cut: str
    complete: bool
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., cut: _Optional[str] = ..., complete: _Optional[bool] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("stream", "start", "by", "columns", "meta", "events_per_s", "bytes_per_s")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    stream: str
    start: str
    by: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    meta: bool
    events_per_s: float
    bytes_per_s: float
    def __init__(self, stream: _Optional[str] = ..., start: _Optional[str] = ..., by: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., meta: _Optional[bool] = ..., events_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("events", "cut", "sealed")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    cut: str
    sealed: bool
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., cut: _Optional[str] = ..., sealed: _Optional[bool] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("verb", "arguments")
    VERB_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    verb: str
    arguments: bytes
    def __init__(self, verb: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class CallResponse(_message.Message):
    __slots__ = ("result", "item")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    item: bytes
    def __init__(self, result: _Optional[bytes] = ..., item: _Optional[bytes] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "fields")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    fields: bytes
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., fields: _Optional[bytes] = ...) -> None: ...
