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
    __slots__ = ("events", "pointers", "ranges", "duplicate", "sampled")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POINTERS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    events: int
    pointers: _containers.RepeatedScalarFieldContainer[str]
    ranges: _containers.RepeatedCompositeFieldContainer[EventRange]
    duplicate: bool
    sampled: Sampled
    def __init__(self, events: _Optional[int] = ..., pointers: _Optional[_Iterable[str]] = ..., ranges: _Optional[_Iterable[_Union[EventRange, _Mapping]]] = ..., duplicate: _Optional[bool] = ..., sampled: _Optional[_Union[Sampled, _Mapping]] = ...) -> None: ...

class Sampled(_message.Message):
    __slots__ = ("of", "weight", "rows")
    OF_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    of: int
    weight: float
    rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, of: _Optional[int] = ..., weight: _Optional[float] = ..., rows: _Optional[_Iterable[int]] = ...) -> None: ...

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
    __slots__ = ("verb", "arguments", "progress")
    VERB_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    verb: str
    arguments: bytes
    progress: bool
    def __init__(self, verb: _Optional[str] = ..., arguments: _Optional[bytes] = ..., progress: _Optional[bool] = ...) -> None: ...

class CallResponse(_message.Message):
    __slots__ = ("result", "item", "progress", "started", "warning")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    item: bytes
    progress: CallProgress
    started: bytes
    warning: bytes
    def __init__(self, result: _Optional[bytes] = ..., item: _Optional[bytes] = ..., progress: _Optional[_Union[CallProgress, _Mapping]] = ..., started: _Optional[bytes] = ..., warning: _Optional[bytes] = ...) -> None: ...

class CallProgress(_message.Message):
    __slots__ = ("what", "done", "total")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    what: str
    done: int
    total: int
    def __init__(self, what: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class ReadGroupRequest(_message.Message):
    __slots__ = ("open", "next", "commit", "checkpoint_taken", "leave", "session")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    open: OpenGroupReader
    next: NextGroupBatch
    commit: CommitGroup
    checkpoint_taken: CheckpointTaken
    leave: LeaveGroup
    session: str
    def __init__(self, open: _Optional[_Union[OpenGroupReader, _Mapping]] = ..., next: _Optional[_Union[NextGroupBatch, _Mapping]] = ..., commit: _Optional[_Union[CommitGroup, _Mapping]] = ..., checkpoint_taken: _Optional[_Union[CheckpointTaken, _Mapping]] = ..., leave: _Optional[_Union[LeaveGroup, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class OpenGroupReader(_message.Message):
    __slots__ = ("group", "reader", "delivery", "batch_events", "meta")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    BATCH_EVENTS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    group: str
    reader: str
    delivery: str
    batch_events: int
    meta: bool
    def __init__(self, group: _Optional[str] = ..., reader: _Optional[str] = ..., delivery: _Optional[str] = ..., batch_events: _Optional[int] = ..., meta: _Optional[bool] = ...) -> None: ...

class NextGroupBatch(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class CommitGroup(_message.Message):
    __slots__ = ("events", "outputs", "batch")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    events: int
    outputs: _containers.RepeatedCompositeFieldContainer[GroupOutput]
    batch: int
    def __init__(self, events: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[GroupOutput, _Mapping]]] = ..., batch: _Optional[int] = ...) -> None: ...

class GroupOutput(_message.Message):
    __slots__ = ("stream", "events")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, stream: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class CheckpointTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveGroup(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: int
    def __init__(self, events: _Optional[int] = ...) -> None: ...

class ReadGroupResponse(_message.Message):
    __slots__ = ("opened", "batch", "nothing", "committed", "checkpoint", "left", "session")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    opened: GroupReaderOpened
    batch: GroupBatch
    nothing: GroupNothing
    committed: GroupCommitted
    checkpoint: GroupCheckpoint
    left: GroupLeft
    session: str
    def __init__(self, opened: _Optional[_Union[GroupReaderOpened, _Mapping]] = ..., batch: _Optional[_Union[GroupBatch, _Mapping]] = ..., nothing: _Optional[_Union[GroupNothing, _Mapping]] = ..., committed: _Optional[_Union[GroupCommitted, _Mapping]] = ..., checkpoint: _Optional[_Union[GroupCheckpoint, _Mapping]] = ..., left: _Optional[_Union[GroupLeft, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class GroupReaderOpened(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: str
    def __init__(self, position: _Optional[str] = ...) -> None: ...

class GroupBatch(_message.Message):
    __slots__ = ("stream", "segment", "events", "more", "number")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    stream: str
    segment: str
    events: _containers.RepeatedCompositeFieldContainer[Event]
    more: bool
    number: int
    def __init__(self, stream: _Optional[str] = ..., segment: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., more: _Optional[bool] = ..., number: _Optional[int] = ...) -> None: ...

class GroupNothing(_message.Message):
    __slots__ = ("end",)
    END_FIELD_NUMBER: _ClassVar[int]
    end: bool
    def __init__(self, end: _Optional[bool] = ...) -> None: ...

class GroupCommitted(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: str
    def __init__(self, position: _Optional[str] = ...) -> None: ...

class GroupCheckpoint(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GroupLeft(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ("open", "write", "flush", "commit", "abort", "session")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    open: OpenTransaction
    write: TransactionWrite
    flush: TransactionFlush
    commit: TransactionCommit
    abort: TransactionAbort
    session: str
    def __init__(self, open: _Optional[_Union[OpenTransaction, _Mapping]] = ..., write: _Optional[_Union[TransactionWrite, _Mapping]] = ..., flush: _Optional[_Union[TransactionFlush, _Mapping]] = ..., commit: _Optional[_Union[TransactionCommit, _Mapping]] = ..., abort: _Optional[_Union[TransactionAbort, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class OpenTransaction(_message.Message):
    __slots__ = ("id", "lease_ms", "caller")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    id: str
    lease_ms: int
    caller: str
    def __init__(self, id: _Optional[str] = ..., lease_ms: _Optional[int] = ..., caller: _Optional[str] = ...) -> None: ...

class TransactionWrite(_message.Message):
    __slots__ = ("stream", "events")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    stream: str
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, stream: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class TransactionFlush(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class TransactionCommit(_message.Message):
    __slots__ = ("note_time_us", "writer")
    NOTE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    note_time_us: int
    writer: str
    def __init__(self, note_time_us: _Optional[int] = ..., writer: _Optional[str] = ...) -> None: ...

class TransactionAbort(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class TransactResponse(_message.Message):
    __slots__ = ("opened", "done", "ended", "session")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    opened: TransactionState
    done: TransactionDone
    ended: TransactionState
    session: str
    def __init__(self, opened: _Optional[_Union[TransactionState, _Mapping]] = ..., done: _Optional[_Union[TransactionDone, _Mapping]] = ..., ended: _Optional[_Union[TransactionState, _Mapping]] = ..., session: _Optional[str] = ...) -> None: ...

class TransactionDone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TransactionState(_message.Message):
    __slots__ = ("id", "state", "begun_us", "expires_us", "events")
    class EventsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BEGUN_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    begun_us: int
    expires_us: int
    events: _containers.ScalarMap[str, int]
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., begun_us: _Optional[int] = ..., expires_us: _Optional[int] = ..., events: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "fields")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    fields: bytes
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., fields: _Optional[bytes] = ...) -> None: ...
