"""Every error the store raises, in one tree. A new type exists only where a caller would react differently.

AnabranchError
├── InvalidArgument (also ValueError)   the call can never succeed as written
│   ├── InvalidName · InvalidKey · InvalidCut · InvalidPointer · InvalidSql
│   ├── SchemaMismatch                  a column is missing, unknown or of another type
│   └── TooLarge                        an event or batch over its limit
├── NotFound (also LookupError)         StoreNotFound · EventNotFound · PipelineNotFound · JobNotFound · GroupNotFound
│   ├── TransactionNotFound
│   ├── ScopeNotFound                   ScopeRenamed
│   └── StreamNotFound                  StreamRenamed
├── AlreadyExists                       ScopeExists · StreamExists
├── ScopeNotEmpty
├── StreamSealed                        no event can be appended any more
├── AppendRefused                       the commit decided against an append; nothing was written
│   ├── Fenced · OutOfSequence · WriterUnknown · ConditionFailed · SegmentSealed · BlobExpired
├── AppendUncertain                     the outcome is unknown: ask for the writer's progress
├── Truncated                           the position lies before the stream's head
├── CorruptStore                        CorruptBlob · BlobMissing · CorruptCatalog · CorruptArchive
├── StoreUnavailable (also OSError)     DiskFull · ReadOnlyStore · StoreBusy
├── KeyMissing · WrongKey               the store is encrypted, under a key that was not given, or that is another
├── FormatTooNew                        the store was written by a newer release
├── PipelineRunning                     another process runs this pipeline
├── JobRunning                          another process runs this job
├── JobStopped                          it was paused, cancelled or has failed
├── PipelineFailed                      one of its queries failed while it ran
├── ReaderNotInGroup                    its group goes on without this reader: open it again
├── Conflict                            another client changed what this plan was made from
├── LeaseExpired
├── TransactionAborted                  none of its events will ever be seen: do the work again
├── RequestMismatch                     a request id was used again for something else
├── MissingExtra (also ImportError)     an optional dependency is not installed
├── Forked                              the store belongs to the process that this one was forked from
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
from anabranch.errors.reading import GroupNotFound, ReaderNotInGroup, Truncated
from anabranch.errors.storage import (
    BlobMissing,
    CorruptArchive,
    CorruptBlob,
    CorruptCatalog,
    CorruptStore,
    DiskFull,
    FormatTooNew,
    KeyMissing,
    ReadOnlyStore,
    StoreBusy,
    StoreUnavailable,
    WrongKey,
)
from anabranch.errors.working import (
    Closed,
    Conflict,
    Forked,
    JobNotFound,
    JobRunning,
    JobStopped,
    LeaseExpired,
    PipelineFailed,
    PipelineNotFound,
    PipelineRunning,
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
    "GroupNotFound",
    "InvalidArgument",
    "InvalidCut",
    "InvalidKey",
    "InvalidName",
    "InvalidPointer",
    "InvalidSql",
    "JobNotFound",
    "JobRunning",
    "JobStopped",
    "KeyMissing",
    "LeaseExpired",
    "MissingExtra",
    "NotFound",
    "OutOfSequence",
    "PipelineFailed",
    "PipelineNotFound",
    "PipelineRunning",
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
    "StreamNotFound",
    "StreamRenamed",
    "StreamSealed",
    "TooLarge",
    "TransactionAborted",
    "TransactionNotFound",
    "Truncated",
    "WriterUnknown",
    "WrongKey",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # where they are to be imported from, as tracebacks and pickles name it
