"""Every cap of the store, named, with its unit. Settings may lower some of them; nothing raises them silently."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Names and values
NAME_CHARS_MAX: Final = 128
TAGS_MAX: Final = 64
TAG_CHARS_MAX: Final = 256
KEY_BYTES_MAX: Final = 64 * KIB
EVENT_BYTES_MAX: Final = 8 * MIB  # an event beyond this lies in a blob of its own
LARGE_EVENT_BYTES_MAX: Final = 256 * MIB  # what a bucket takes within BLOB_REQUEST_S, and Spark in one value
BATCH_BYTES_MAX: Final = 1024 * MIB
COLUMNS_MAX: Final = 1_000
SEGMENTS_MAX: Final = 10_000  # open segments of one stream

# Append
INLINE_BYTES_MAX: Final = 64 * KIB  # a commit up to this size is carried by the catalog row
COMMIT_BYTES_MAX: Final = 16 * MIB  # a group commit stops gathering here; one larger batch still goes whole
COMMITS_IN_FLIGHT_MAX: Final = 2  # blobs written at the same time; their catalog commits stay in order
REMOTE_COMMITS_IN_FLIGHT_MAX: Final = 16  # the same for an object store: so many PUTs hide their own latency
PENDING_BYTES_MAX: Final = 64 * MIB  # a writer's call blocks while this much is not yet committed
REMOTE_PENDING_BYTES_MAX: Final = 384 * MIB  # the same for an object store: more than its commits in flight carry
PIPELINE_BYTES_MIN: Final = MIB  # below this a gather waits for the commit under way instead of starting a second one
WRITER_BATCHES_KEPT: Final = 16  # offsets of a writer's last batches per log, for retries
WRITER_BATCHES_IN_FLIGHT_MAX: Final = 8  # at most WRITER_BATCHES_KEPT, so that every retry finds its answer
WRITER_PROGRESS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000
STAGED_BYTES_MAX: Final = 32 * MIB  # a task's staged rows become a blob when they weigh so much
STAGED_INLINE_BYTES_MAX: Final = 16 * KIB  # a staged batch up to this size travels to the publisher as bytes
UNAWAITED_US: Final = 2_000  # an event that nobody waits for, behind ones that were waited for, is committed by then

# Read
EXTENTS_PER_PLAN_MAX: Final = 512  # one page of a read plan
SPANS_PER_LOOK: Final = 64  # spans whose extents are looked up at once
OPEN_BLOBS_MAX: Final = 256  # memory maps kept by a process
READ_ROWS_MAX: Final = 65_536  # rows of one batch that a reader yields
READ_BYTES_MAX: Final = 64 * MIB  # of one batch that a reader yields; a larger event comes alone
SMALL_ROWS: Final = 1_024  # batches below this are put together before they are yielded
OPEN_PARQUET_MAX: Final = 32  # opened tier-2 files kept by a process, beside those in use
OPEN_PARQUET_BYTES_MAX: Final = 512 * MIB  # of them, which are in memory if they were fetched, and mapped if not
VERIFIED_PLACES_MAX: Final = 65_536  # messages whose checksum a process remembers to have verified
UNSEALED_BYTES_MAX: Final = 64 * MIB  # messages of an encrypted store that a process keeps opened
SCHEMAS_KEPT_MAX: Final = 1_024  # schema versions a process remembers
SHARED_CONSTANTS_MAX: Final = 32  # columns of one value that batches share, of up to 512 KiB
SHARED_RUNS_MAX: Final = 4  # runs of offsets that batches share, of 1 MiB
AHEAD_BYTES_MIN: Final = 256 * KIB  # a message from this size on is verified before its reader asks for it
HELPED_MAX: Final = 64  # messages that wait for that

# Historical readers
HISTORY_RANGE_BYTES: Final = 16 * MIB  # logical bytes that become one range
HISTORY_RANGES_MAX: Final = 65_536  # between two places; beyond, ranges are larger
HISTORY_WINDOW: Final = 8  # ranges read ahead of the one in hand
HISTORY_WINDOW_BYTES: Final = 256 * MIB  # logical bytes that one prefetching reader holds at most

# Byte streams
BYTE_CHUNK_BYTES: Final = MIB  # of one event; below the least event_bytes_max
BYTE_GATHERED_BYTES: Final = 4 * MIB  # of a writer, before it appends them by itself
BYTE_BUFFER_BYTES: Final = 64 * KIB  # of a reader
BYTE_WAIT_S: Final = 1.0  # how often a reader that waits at the tail looks whether it was closed

# Object stores
BLOB_REQUEST_S: Final = 60.0  # one attempt of a request, its bytes included
BLOB_CONNECT_S: Final = 5.0
BLOB_DEADLINE_S: Final = 180.0  # all attempts of one call; far below HORIZON_US
BLOB_PAUSE_S_MIN: Final = 0.1  # between attempts; it doubles from one to the next
BLOB_PAUSE_S_MAX: Final = 10.0
BLOB_PART_BYTES: Final = 8 * MIB  # a larger read is made in parts of this size
BLOB_PAGE_ROWS: Final = 1_000  # of one page of a listing
BLOB_PARTS_MAX: Final = 4  # parts of one read that are fetched at the same time
TAIL_CACHE_BYTES_MAX: Final = 128 * MIB  # fresh commits that a process keeps, if its blobs are remote
HISTORY_CACHE_BYTES_MAX: Final = 256 * MIB  # older ranges that it keeps, apart from those
HISTORY_FETCHES_MAX: Final = 4  # older ranges that are fetched at the same time
FRESH_COMMIT_US: Final = 60 * 1_000_000  # a commit younger than this is read by those who tail

# Tail
TAIL_POLL_US_MIN: Final = 500
TAIL_POLL_US_MAX: Final = 4_000

# Reader groups and shared state
SYNCHRONIZER_ENTRIES_KEPT: Final = 256  # of a shared value; then all but the present one are let go of
SYNCHRONIZER_PAUSE_US_MIN: Final = 500  # the most that an update waits when another was first; it doubles with each
SYNCHRONIZER_PAUSE_US_MAX: Final = 64_000
READER_LEASE_US: Final = 10 * 1_000_000  # a group reader that gives no sign of life for so long is presumed dead
READER_LEASE_US_MIN: Final = 100_000
READER_REFRESH_US: Final = 400_000  # how often it looks at the group's state, and tells how far it is
READER_REFRESH_US_MIN: Final = 10_000
READER_ROWS_MAX: Final = (
    4_096  # of a batch that a group reader yields: so many may be read in vain by one presumed dead
)
CHECKPOINTS_KEPT: Final = 16  # of a reader group
AUDIT_KEYS_MAX: Final = 100_000  # keys of writers whose last number an audit remembers
TIME_IDLE_US: Final = 60 * 1_000_000  # a writer that noted no time for so long does not hold the watermark up
SILENT_WRITERS_KEPT: Final = 16  # so many of these are told of with a watermark
SILENT_WRITERS_KEPT_US: Final = 24 * 3600 * 1_000_000  # and for so long
TIMES_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # how far back the time window of a position is known
TIMES_KEPT_BYTES: Final = MIB  # at least so much of it, however old
NOTIFICATION_PAGE: Final = 100  # changes that become notifications in one transaction
NOTIFICATION_REST_S: Final = 0.01  # between two looks for changes, so that a busy store is not asked at each commit
NOTIFICATION_RETRY_S: Final = 1.0  # after a listener's task could not read
NOTIFICATION_CLOSE_S: Final = 5.0  # how long closing a store waits for a listener that is at work
NOTIFICATIONS_KEPT_US: Final = 30 * 24 * 3600 * 1_000_000  # unless their stream is given another retention

# Scale by load
SCALING_SHORT_US: Final = 60 * 1_000_000  # the window in which a burst is seen, and the rest before a split
SCALING_LONG_US: Final = 600 * 1_000_000  # the window in which a lull is seen, and the rest before a merge
SCALING_WIDTH_MIN: Final = 1 << 48  # points of a segment that load may still split off: a 65,536th of the key space

# Compact and collect
PARQUET_BYTES_MAX: Final = 128 * MIB  # logical bytes gathered into one tier-2 file
ARCHIVE_FILE_BYTES_MAX: Final = 256 * MIB  # logical bytes of an archive's data file, unless one event has more
PARQUET_BYTES_MIN: Final = 64 * MIB
PARQUET_ROWS_PER_GROUP: Final = 256 * 1024
PARQUET_GROUP_BYTES_MAX: Final = 32 * MIB  # Arrow bytes buffered for one row group
PARQUET_PARTS_MAX: Final = 1_000  # runs of small logs that share one file
COMPACT_EXTENTS_MAX: Final = 16_384  # extents swapped in one transaction, and looked at for one plan
COMPACT_EXTENTS_MIN: Final = 1_024  # this many tier-1 extents are worth a file, however small they are
COMPACT_AGE_US: Final = 900 * 1_000_000  # a tier-1 extent older than this is worth a file
FLATTEN_SPANS_MIN: Final = 16  # so many short spans side by side are rewritten as one log
FLATTEN_SPANS_FORCED: Final = 4  # the same for a compaction that takes what is hardly worth it
FLATTEN_SPAN_BYTES_MAX: Final = 8 * MIB  # logical bytes of a span that counts as short
FLATTEN_PAGE: Final = 64  # segments looked up at once
COLLECT_PAGE_ROWS: Final = 1_000  # logs or blobs looked at in one transaction
HORIZON_US: Final = 3600 * 1_000_000  # a commit whose blob is older than this is refused
RETENTION_S: Final = 900.0  # how often upkeep carries retention policies out
REQUESTS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000
REQUEST_CHARS_MAX: Final = 512  # of a request id
CHANGES_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000
LEASE_US: Final = 600 * 1_000_000
TRANSACTIONS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # how long it is known what became of one
TRANSACTION_LEASE_S: Final = 600.0  # how long one lives without being written to, if its owner says nothing else
TRANSACTION_LEASE_S_MAX: Final = 366 * 24 * 3600.0
JOB_LEASE_US: Final = 6 * 3600 * 1_000_000  # of a Spark job, which can't renew it before its last stage runs

# Ephemeral streams
EPHEMERAL_LEASE_US: Final = 60 * 1_000_000  # a holder that is not heard of for so long is taken for dead
CLOCKS_DIFFER_US: Final = 60 * 1_000_000  # so much later, in case the clocks of processes differ

# Jobs
JOB_RANGE_BYTES: Final = 64 * MIB  # logical bytes of a source that become one range of a job
JOB_RANGES_MAX: Final = 4_096  # of one stream; beyond, its ranges are larger
JOB_BUNDLE_RANGES_MAX: Final = 256  # small ranges that are moved one after another by one task
JOB_BLOB_BYTES: Final = 16 * MIB  # messages gathered into one blob; a larger one goes alone
JOB_EXTENTS_MAX: Final = 4_096  # extents that a job appends in one transaction
JOB_WINDOW: Final = 4  # bundles of ranges in flight
KNOWN_MESSAGES_MAX: Final = 262_144  # checksums that are remembered while repeats are left out, about 100 bytes each
SIFT_ROWS: Final = 2_097_152  # digests that a Spark task compares at a time, 24 bytes each
JOB_SILENT_US: Final = 30 * 1_000_000  # a job whose process was not heard of for so long may be taken over
JOBS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # rows of jobs that have ended

# Recover
MANIFEST_PART_BYTES: Final = 8 * MIB  # rows of the catalog in one blob of a manifest
MANIFESTS_KEPT: Final = 3
MANIFEST_BEGUN_US: Final = 24 * 3600 * 1_000_000  # one that was begun so long ago will not be finished
MANIFEST_S: Final = 3600.0  # how often upkeep exports one
MANIFEST_HOLDS_US: Final = 7 * 24 * 3600 * 1_000_000  # so long the newest one keeps the blobs it names from collection
BACKUP_LEASE_US: Final = 3600 * 1_000_000  # while the catalog is copied, which renews no lease
REBUILD_IDS_SKIPPED: Final = 1_000_000  # ids that a lost catalog may have given after its last manifest

# Catalog
CATALOG_PAGE_ROWS: Final = 1_000
REQUEST_TRIES_MAX: Final = 5  # of a change whose answer was lost, where nobody else would ask again
SCOPE_PAGE: Final = 64  # streams of a scope that are copied or deleted in one transaction
ALIASES_MAX: Final = 64  # of one stream
ANCESTORS_MAX: Final = 16  # streams before its source that a copy can name when all of them are gone
FORMER_NAMES_MAX: Final = 16  # names that a stream had and still answers to, by naming the new one
CATALOG_LOCK_S: Final = 60.0  # how long a process waits for its turn before StoreBusy, and for a server that is away
POSTGRES_CONNECTIONS_MAX: Final = 16  # of one process, beside one that listens and one that notifies
LISTEN_POLL_US: Final = 1_000_000  # how often a listener looks by itself, in case notifications are lost
WAL_PAGES_CHECKPOINT: Final = 4_096  # 16 MiB of write-ahead log start a checkpoint
