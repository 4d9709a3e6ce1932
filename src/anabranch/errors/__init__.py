"""Every error the store raises, in one tree. A new type exists only where a caller would react differently.

AnabranchError
├── InvalidArgument (also ValueError)   the call can never succeed as written
│   ├── InvalidName · InvalidKey · InvalidCut · InvalidPointer · InvalidSql
│   ├── SchemaMismatch                  a column is missing, unknown or of another type
│   ├── TooLarge                        an event or batch exceeds its limit
│   └── KeysUnreadable                  the keys can't be read from the given place
├── NotFound (also LookupError)         StoreNotFound · EventNotFound · PipelineNotFound · JobNotFound · GroupNotFound
│   ├── QueryNotFound · TemplateNotFound · ModuleNotFound
│   ├── TransactionNotFound
│   ├── ScopeNotFound                   ScopeRenamed
│   └── StreamNotFound                  StreamRenamed · GroupStreamDeleted
├── AlreadyExists                       ScopeExists · StreamExists
├── ScopeNotEmpty
├── StreamSealed                        no more events can be appended
├── AppendRefused                       the commit refused an append; nothing was written
│   ├── Fenced · OutOfSequence · WriterUnknown · ConditionFailed · SegmentSealed · BlobExpired
├── AppendUncertain                     the outcome is unknown: read the writer's progress
├── Truncated                           the position is before the stream's head
├── CorruptStore                        CorruptBlob · BlobMissing · CorruptCatalog · CorruptArchive
├── AttachmentUnconfirmed               files attached to a restored store: confirm their place first
├── StoreUnavailable (also OSError)     DiskFull · ReadOnlyStore · StoreBusy
├── KeyMissing · WrongKey               the store is encrypted; its key was not given, or a different one was
├── FormatTooNew                        the store was written by a newer release
├── PipelineRunning                     another process runs this pipeline
├── StreamHasPipeline                   another pipeline writes to this stream
├── JobUnconfirmed                      a job of a restored store: confirm its places first
├── JobRunning                          another process runs this job
├── JobStopped                          the job was paused, cancelled or has failed
├── ModuleFailed                        a WebAssembly module's function was stopped, or refused its input
├── FunctionFailed                      a function of a query's Python code failed
├── QueryLimitExceeded                  a query needs more memory or time than it may use
├── PipelineFailed                      one of its queries failed while it ran
├── NoResultsYet                        a deployed query has not made its result stream
├── ReaderNotInGroup                    the group no longer includes this reader: open it again
├── Conflict                            another client changed the state this plan was made from
├── LeaseExpired
├── TransactionAborted                  its events will never become visible: repeat the work
├── RequestMismatch                     a request id was reused for another operation
├── MissingExtra (also ImportError)     an optional dependency is not installed
├── Forked                              the store was opened before this process was forked
├── Unauthenticated · PermissionDenied    a broker does not know the caller, or does not allow it the call
├── RateLimited                     a broker's limit is reached: try again after the stated time
├── NotRemote                       the call can't be made through a broker
└── Closed                              the object was closed
"""

from __future__ import annotations

from anabranch.errors.arguments import (
    InvalidArgument,
    InvalidCut,
    InvalidKey,
    InvalidName,
    InvalidPointer,
    InvalidSql,
    MissingExtra,
    RequestMismatch,
    SchemaMismatch,
    TooLarge,
)
from anabranch.errors.base import AlreadyExists, AnabranchError, NotFound
from anabranch.errors.long_running import (
    Closed,
    Conflict,
    Forked,
    FunctionFailed,
    JobNotFound,
    JobRunning,
    JobStopped,
    JobUnconfirmed,
    LeaseExpired,
    ModuleFailed,
    ModuleNotFound,
    NoResultsYet,
    PipelineFailed,
    PipelineNotFound,
    PipelineRunning,
    QueryLimitExceeded,
    QueryNotFound,
    StreamHasPipeline,
    TemplateNotFound,
)
from anabranch.errors.names import (
    EventNotFound,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    ScopeRenamed,
    StoreNotFound,
    StreamExists,
    StreamNotFound,
    StreamRenamed,
)
from anabranch.errors.reading import GroupNotFound, GroupStreamDeleted, ReaderNotInGroup, Truncated
from anabranch.errors.serving import NotRemote, PermissionDenied, RateLimited, Unauthenticated
from anabranch.errors.storage import (
    AttachmentUnconfirmed,
    BlobMissing,
    CorruptArchive,
    CorruptBlob,
    CorruptCatalog,
    CorruptStore,
    DiskFull,
    FormatTooNew,
    KeyMissing,
    KeysUnreadable,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
    WrongKey,
)
from anabranch.errors.writing import (
    AppendRefused,
    AppendUncertain,
    BlobExpired,
    ConditionFailed,
    Fenced,
    OutOfSequence,
    SegmentSealed,
    StreamSealed,
    TransactionAborted,
    TransactionNotFound,
    WriterUnknown,
)

__all__ = [
    "AlreadyExists",
    "AnabranchError",
    "AppendRefused",
    "AppendUncertain",
    "AttachmentUnconfirmed",
    "BlobExpired",
    "BlobMissing",
    "Closed",
    "ConditionFailed",
    "Conflict",
    "CorruptArchive",
    "CorruptBlob",
    "CorruptCatalog",
    "CorruptStore",
    "DiskFull",
    "EventNotFound",
    "Fenced",
    "Forked",
    "FormatTooNew",
    "FunctionFailed",
    "GroupNotFound",
    "GroupStreamDeleted",
    "InvalidArgument",
    "InvalidCut",
    "InvalidKey",
    "InvalidName",
    "InvalidPointer",
    "InvalidSql",
    "JobNotFound",
    "JobRunning",
    "JobStopped",
    "JobUnconfirmed",
    "KeyMissing",
    "KeysUnreadable",
    "LeaseExpired",
    "MissingExtra",
    "ModuleFailed",
    "ModuleNotFound",
    "NoResultsYet",
    "NotFound",
    "NotRemote",
    "OutOfSequence",
    "PermissionDenied",
    "PipelineFailed",
    "PipelineNotFound",
    "PipelineRunning",
    "QueryLimitExceeded",
    "QueryNotFound",
    "RateLimited",
    "ReadOnlyStore",
    "ReaderNotInGroup",
    "RequestMismatch",
    "SchemaMismatch",
    "ScopeExists",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "ScopeRenamed",
    "SegmentSealed",
    "StoreBusy",
    "StoreNotFound",
    "StoreUnavailable",
    "StreamExists",
    "StreamHasPipeline",
    "StreamNotFound",
    "StreamRenamed",
    "StreamSealed",
    "TemplateNotFound",
    "TooLarge",
    "TransactionAborted",
    "TransactionNotFound",
    "Truncated",
    "Unauthenticated",
    "WriterUnknown",
    "WrongKey",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # the public import path, which tracebacks and pickles show
