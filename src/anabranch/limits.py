"""All limits of the store, named, each with its unit. Settings may lower some of them; nothing raises them silently."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Names and values
NAME_CHARS_MAX: Final = 128  # of a name: of a scope, of a stream in it, of a module
TAGS_MAX: Final = 64  # of one stream or scope
TAG_CHARS_MAX: Final = 256  # of a tag's name, and of its value
KEY_BYTES_MAX: Final = 64 * KIB  # of a routing key, in UTF-8
EVENT_BYTES_MAX: Final = 8 * MIB  # a larger event is stored in a blob of its own
LARGE_EVENT_BYTES_MAX: Final = 256 * MIB  # fits an upload within BLOB_REQUEST_S, and one Spark value
BATCH_BYTES_MAX: Final = 1024 * MIB  # of one atomic batch
CHECKS_MAX: Final = 64  # of a stream
CHECK_CHARS_MAX: Final = 2_000  # of the condition of a check
SCHEMA_FRESH_S: Final = 1.0  # a writer of a typed stream takes up a changed schema within this time
COLUMNS_MAX: Final = 1_000  # of one stream
COLUMN_NESTING_MAX: Final = 64  # how deep types of one column may be nested: Arrow and Spark recurse into them
SEGMENTS_MAX: Final = 10_000  # open segments of one stream

# Times: an integer given as an event's time is expected between these, in µs
TIME_PLAUSIBLE_MIN_US: Final = 315_532_800_000_000  # 1980-01-01
TIME_PLAUSIBLE_MAX_US: Final = 7_258_118_400_000_000  # 2200-01-01

# Append
INLINE_BYTES_MAX: Final = 64 * KIB  # a commit up to this size is stored in the catalog row
COMMIT_BYTES_MAX: Final = 16 * MIB  # a group commit stops gathering here; a larger batch is still committed whole
COMMITS_IN_FLIGHT_MAX: Final = 2  # blobs written at the same time; their catalog commits stay in order
REMOTE_COMMITS_IN_FLIGHT_MAX: Final = 16  # the same for an object store: this many PUTs hide their own latency
PENDING_BYTES_MAX: Final = 64 * MIB  # a writer's call blocks while more than this is uncommitted
REMOTE_PENDING_BYTES_MAX: Final = 384 * MIB  # the same for an object store: more than its commits in flight hold
PIPELINE_BYTES_MIN: Final = MIB  # a smaller group waits for the commit in progress instead of starting a second one
WRITER_BATCHES_KEPT: Final = 16  # offsets of a writer's last batches kept per log, for retries
PRODUCER_ANSWERS_KEPT: Final = 16  # answers kept of each producer, for repeated appends
PRODUCERS_PER_STREAM_MAX: Final = 10_000  # rows that a stream keeps as long as it lives
PRODUCERS_UNNAMED_KEPT_US: Final = (
    7 * 24 * 3600 * 1_000_000
)  # at least; those of clients that never closed their writer
PRODUCERS_PAGE: Final = 256  # rows read at a time
PRODUCER_NAME_BYTES_MAX: Final = 256  # in UTF-8
KNOWN_STATES_MAX: Final = 16_384  # states of logs and writers that a SQLite catalog keeps from one commit to the next
WRITER_PROGRESS_KEPT_US: Final = (
    7 * 24 * 3600 * 1_000_000
)  # since a writer's last append to a log; later it can't repeat one
STAGED_BYTES_MAX: Final = 32 * MIB  # a task's staged rows are written to a blob at this size
STAGED_INLINE_BYTES_MAX: Final = 16 * KIB  # a staged batch up to this size is sent to the publisher as bytes
UNAWAITED_COMMIT_DELAY_US_MAX: Final = (
    2_000  # an event that no caller awaits, after awaited ones, is committed within this time
)

# Read
EXTENTS_PER_PLAN_MAX: Final = 512  # one page of a read plan
SPANS_PER_LOOKUP: Final = 64  # spans whose extents are looked up in one query
OPEN_BLOBS_MAX: Final = 256  # memory maps kept by a process
FOLDERS_KEPT_MAX: Final = 4_096  # folders that a process has verified to be inside their root
READ_ROWS_MAX: Final = 65_536  # rows in one batch that a reader yields
READ_BYTES_MAX: Final = 64 * MIB  # bytes in one batch that a reader yields; a larger event is yielded alone
SMALL_ROWS: Final = 1_024  # smaller batches are concatenated before they are yielded
OPEN_PARQUET_MAX: Final = 32  # open tier-2 files kept by a process, in addition to those in use
OPEN_PARQUET_BYTES_MAX: Final = 512 * MIB  # their total size; fetched ones are in memory, others are mapped
VERIFIED_PLACES_MAX: Final = 65_536  # messages that a process remembers as verified
UNSEALED_BYTES_MAX: Final = 64 * MIB  # decrypted messages that a process keeps, of an encrypted store
SCHEMAS_KEPT_MAX: Final = 1_024  # schema versions a process remembers
SHARED_CONSTANTS_MAX: Final = 32  # constant columns shared by batches, each up to 512 KiB
SHARED_RUNS_MAX: Final = 4  # runs of offsets shared by batches, each 1 MiB
VERIFY_AHEAD_BYTES_MIN: Final = 256 * KIB  # messages of at least this size are verified ahead of the reader
VERIFY_AHEAD_QUEUE_MAX: Final = 64  # messages queued for that

# Queries
QUERY_FILTERS_MAX: Final = 4  # tasks that filter the batches of a scan
QUERY_BATCHES_AHEAD: Final = 8  # batches of a filtered scan that are read beyond the one requested
QUERY_AHEAD_BYTES: Final = 64 * MIB  # as soon as those read have this size, no further one is read
SQL_BYTES_MAX: Final = 256 * KIB  # the text of a query that may not use files
SQL_FILE_BYTES_MAX: Final = 64 * MIB  # the text of a query that may use files
SQL_DIGITS_MAX: Final = 1_000  # of a number in any text of SQL
PIPE_WAIT_S: Final = 30.0  # how long a pipe given as a file may stay without data
DIALECT_STATEMENTS_MAX: Final = 1_000  # of one text that is translated
QUERY_PROCESSES_MAX: Final = 4  # queries that a broker runs at the same time, each in a process of its own
SQL_STATEMENTS_KEPT: Final = 1_024  # prepared statements whose parameters a broker remembers
QUERY_QUEUE_S: Final = 10.0  # how long a further one waits for its turn
QUERY_MEMORY_BYTES: Final = 1024 * MIB  # of one query of a broker
QUERY_SPILL_BYTES: Final = 4096 * MIB  # on disk, of one query of a broker
QUERY_S_MAX: Final = 300.0  # time of one query of a broker, until its last row is taken
TRANSLATION_S_MAX: Final = 10.0  # time of translating the SQL of another system, in a broker
QUERY_MEMORY_BYTES_MIN: Final = 16 * MIB  # DuckDB can't run a query with less
INFLUX_PROBLEMS_MAX: Final = 10  # that the answer to a write names
INFLUXQL_STATEMENTS_MAX: Final = 100  # of one request
INFLUXQL_DEPTH_MAX: Final = 64  # of the brackets in an expression
INFLUXQL_OPERATORS_MAX: Final = 200  # of one expression
INFLUXQL_SUBQUERIES_MAX: Final = 100  # of one request
INFLUXQL_SUBQUERY_DEPTH_MAX: Final = 16  # of subqueries in each other
INFLUXQL_SUBQUERY_MEMORY_BYTES: Final = 512 * MIB  # of a process, to compute on the results of subqueries
INFLUXQL_WINDOWS_MAX: Final = 100_000  # of one series
INFLUXQL_ROWS_MAX: Final = 1_000_000  # that a statement returns, or reads to compute its result
PROMQL_TOKENS_MAX: Final = 1_500  # words and signs of a query
PROMQL_DEPTH_MAX: Final = 100  # of operators, brackets and calls in each other
PROMQL_POINTS_MAX: Final = 11_000  # of a series in the answer to a range query
PROMQL_SAMPLES_MAX: Final = 5_000_000  # that a query reads
PROMQL_SERIES_MAX: Final = 100_000  # whose labels a query returns
PROMQL_CELLS_MAX: Final = 10_000_000  # series times points of a vector that a query computes
PROMQL_RESULT_POINTS_MAX: Final = 2_000_000  # of all series in an answer

# Historical readers
HISTORY_RANGE_BYTES: Final = 16 * MIB  # logical bytes in one range
HISTORY_RANGES_MAX: Final = 65_536  # between two places; with more data, ranges are larger
HISTORY_WINDOW: Final = 8  # ranges prefetched beyond the current one
HISTORY_WINDOW_BYTES: Final = 256 * MIB  # logical bytes that one prefetching reader holds at most

# Byte streams
BYTE_CHUNK_BYTES: Final = MIB  # size of one event; below the smallest event_bytes_max
BYTE_GATHERED_BYTES: Final = 4 * MIB  # bytes a writer buffers before it appends them unasked
BYTE_BUFFER_BYTES: Final = 64 * KIB  # a reader's buffer
BYTE_WAIT_S: Final = 1.0  # how often a reader waiting at the tail checks whether it was closed

# Object stores
BLOB_REQUEST_S: Final = 60.0  # one attempt of a request, including the transfer
BLOB_CONNECT_S: Final = 5.0  # for a connection to an object store
BLOB_DEADLINE_S: Final = 180.0  # all attempts of one call; far below HORIZON_US
BLOB_PAUSE_S_MIN: Final = 0.1  # between attempts; doubles each time
BLOB_PAUSE_S_MAX: Final = 10.0  # the longest such pause
BLOB_PART_BYTES: Final = 8 * MIB  # a larger read is made in parts of this size
BLOB_PAGE_ROWS: Final = 1_000  # in one page of a listing
BLOB_PARTS_MAX: Final = 4  # parts of one read that are fetched at the same time
TAIL_CACHE_BYTES_MAX: Final = 128 * MIB  # recent commits that a process caches, if its blobs are remote
HISTORY_CACHE_BYTES_MAX: Final = 256 * MIB  # older ranges that it caches, in addition
HISTORY_FETCHES_MAX: Final = 4  # older ranges fetched at the same time
FRESH_COMMIT_US: Final = 60 * 1_000_000  # a younger commit counts as recent, read by tailing readers

# Tail
TAIL_POLL_US_MIN: Final = 500  # how often a follower looks for commits of other processes, while there are any
TAIL_POLL_US_MAX: Final = 4_000  # the same while there are none
TAIL_POLL_REPORTED_US_MAX: Final = 40_000  # where the catalog reports commits; a report may be lost

# Reader groups and shared state
SYNCHRONIZER_ENTRIES_KEPT: Final = 256  # of a shared value; then all but the current one are removed
SYNCHRONIZER_PAUSE_US_MIN: Final = 500  # an update's longest pause after losing a race; doubles each time
SYNCHRONIZER_PAUSE_US_MAX: Final = 64_000  # and at most
READER_LEASE_US: Final = 10 * 1_000_000  # a group reader without a heartbeat for this long is presumed dead
READER_LEASE_US_MIN: Final = 100_000  # the shortest that a group may choose
READER_REFRESH_US: Final = 400_000  # how often it reads the group's state and reports its position
READER_REFRESH_US_MIN: Final = 10_000  # the shortest that a group may choose
READER_ROWS_MAX: Final = 4_096  # rows in a group reader's batch: at most this many are wasted if it is presumed dead
REFUSALS_KEPT: Final = 64  # of a writer, that its caller has not seen
CHECKPOINTS_KEPT: Final = 16  # of a reader group
CHECKPOINTS_PENDING_MAX: Final = 8  # of a reader group
AUDIT_KEYS_MAX: Final = 100_000  # writers' keys whose last number an audit keeps
TIME_IDLE_US: Final = 60 * 1_000_000  # a writer that noted no time for this long no longer holds the watermark back
IDLE_WRITERS_KEPT: Final = 16  # such writers reported with a watermark
IDLE_WRITERS_KEPT_US: Final = 24 * 3600 * 1_000_000  # and for this long
WATERMARK_STREAMS_MAX: Final = 1_000  # streams whose noted times a store keeps in memory; others are read again
TIMES_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # how far back the time window of a position is known
TIMES_KEPT_BYTES: Final = MIB  # at least this much of it, whatever its age
NOTIFICATION_PAGE: Final = 100  # changes that become notifications in one transaction
NOTIFICATION_POLL_S: Final = 0.01  # between two polls for changes, so that a busy store isn't queried at each commit
NOTIFICATION_RETRY_S: Final = 1.0  # after a listener's task failed to read
NOTIFICATION_CLOSE_S: Final = 5.0  # how long closing a store waits for a running listener
NOTIFICATIONS_KEPT_US: Final = 30 * 24 * 3600 * 1_000_000  # unless their stream has another retention

# Scale by load
SCALING_SHORT_US: Final = 60 * 1_000_000  # the window that detects a burst, and the pause before a split
SCALING_LONG_US: Final = 600 * 1_000_000  # the window that detects a lull, and the pause before a merge
SCALING_WIDTH_MIN: Final = 1 << 48  # key points: load never splits segments below this, 1/65,536 of the key space

# Compact and collect
PARQUET_BYTES_MAX: Final = 128 * MIB  # logical bytes gathered into one tier-2 file
ARCHIVE_FILE_BYTES_MAX: Final = 256 * MIB  # logical bytes of an archive's data file, unless one event has more
PARQUET_BYTES_MIN: Final = 64 * MIB  # logical bytes of a segment that are worth a tier-2 file
PARQUET_ROWS_PER_GROUP: Final = 256 * 1024  # rows of one row group
PARQUET_GROUP_BYTES_MAX: Final = 32 * MIB  # Arrow bytes buffered for one row group
PARQUET_FOOTER_BYTES_MAX: Final = 128 * MIB  # a longer footer is refused without reading it
PARQUET_PAGE_BYTES_MAX: Final = 512 * MIB  # the decompressed size that one page may declare
PARQUET_PAGES_BYTES_MAX: Final = (
    1024 * MIB
)  # sum of the largest page of each column in a row group, all in memory together
PARQUET_PAGE_VALUES_MAX: Final = 64 * MIB  # values of one page; not bytes
PARQUET_DECODED_BYTES_MAX: Final = 128 * MIB  # of one decoded batch, assuming the longest values its pages can hold
PARQUET_NESTED_BYTES_MAX: Final = 2048 * MIB  # of a nested column in a row group, since one row may hold all of it
PARQUET_PARTS_MAX: Final = 1_000  # runs of small logs that share one file
COMPACT_EXTENTS_MAX: Final = 16_384  # extents swapped in one transaction, and read for one plan
COMPACT_EXTENTS_MIN: Final = 1_024  # this many tier-1 extents are compacted, however small they are
COMPACT_AGE_US: Final = 900 * 1_000_000  # a tier-1 extent older than this is compacted
FLATTEN_SPANS_MIN: Final = 16  # this many adjacent short spans are rewritten as one log
FLATTEN_SPANS_FORCED: Final = 4  # the same for a forced compaction
FLATTEN_SPAN_BYTES_MAX: Final = 8 * MIB  # logical bytes of a span that counts as short
FLATTEN_PAGE: Final = 64  # segments looked up in one query
UPKEEP_RETRY_US: Final = 60 * 1_000_000  # before failed upkeep of a stream is retried; doubles each time
UPKEEP_RETRY_US_MAX: Final = 6 * 3600 * 1_000_000  # and at most
COLLECT_PAGE_ROWS: Final = 1_000  # logs or blobs read in one transaction
HORIZON_US: Final = 3600 * 1_000_000  # a commit whose blob is older than this is refused
SUBSCRIBERS_MAX: Final = 64  # reader groups that one retention policy waits for
RETENTION_S: Final = 900.0  # how often upkeep applies retention policies
REQUESTS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # how long a change can be repeated with the same request id
REQUEST_CHARS_MAX: Final = 512  # of a request id
CHANGES_KEPT_US: Final = (
    7 * 24 * 3600 * 1_000_000
)  # how long changes stay in the outbox, from which notifications are made
LEASE_US: Final = 600 * 1_000_000  # a lease that is not renewed for this long has ended
TRANSACTIONS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # how long a transaction's outcome is kept
TRANSACTION_LEASE_S: Final = 600.0  # default time until a transaction without writes expires
TRANSACTION_LEASE_S_MAX: Final = 366 * 24 * 3600.0  # the longest that a transaction may ask for: 366 days
JOB_LEASE_US: Final = 6 * 3600 * 1_000_000  # a Spark job's lease, which can't be renewed before its last stage runs

# Ephemeral streams
EPHEMERAL_LEASE_US: Final = 60 * 1_000_000  # a holder without a heartbeat for this long is presumed dead
CLOCKS_DIFFER_US: Final = 60 * 1_000_000  # added to that, in case processes see the catalog's clock differently

# Replace
REPLACE_VIEW_EVENTS: Final = 1_024  # runs of at least this many kept events are viewed in place, never rewritten
REPLACE_RUNS_MIN: Final = 8  # this many adjacent shorter runs are rewritten together
REPLACE_EVENTS_MAX: Final = 65_536  # events rewritten as one log
REPLACE_TRIES_MAX: Final = (
    8  # times that events appended meanwhile are read again before they are read under the catalog's lock
)
REPLACE_MOVES_MAX: Final = 4_096  # event relocations recorded for a replacement, or for a stream's last replacements
REPLACEMENTS_KEPT: Final = 16  # of a stream, by which readers map their old positions

# Jobs
JOB_RANGE_BYTES: Final = 64 * MIB  # logical bytes of a source that become one range of a job
JOB_RANGES_MAX: Final = 4_096  # of one stream; with more data, its ranges are larger
JOB_BUNDLE_RANGES_MAX: Final = 256  # small ranges that one task moves one after another
JOB_BLOB_BYTES: Final = 16 * MIB  # messages gathered into one blob; a larger message gets its own
JOB_EXTENTS_MAX: Final = 4_096  # extents that a job appends in one transaction
JOB_WINDOW: Final = 4  # bundles of ranges in flight
KNOWN_MESSAGES_MAX: Final = 262_144  # checksums kept while skipping repeats, about 100 bytes each
DEDUP_ROWS: Final = 2_097_152  # digests that a Spark task compares at once, 24 bytes each
JOB_HEARTBEAT_TIMEOUT_US: Final = 30 * 1_000_000  # a job whose process had no heartbeat for this long may be taken over
JOBS_KEPT_US: Final = 7 * 24 * 3600 * 1_000_000  # rows of jobs that have ended

# Pipelines
LATE_SHARE_MAX: Final = 0.01  # share of the events a run reads; a run with more late events warns
LATE_SHARE_EVENTS: Final = 1_000  # a continuing run is not checked before it has read this many

# Recover
MANIFEST_PART_BYTES: Final = 8 * MIB  # catalog rows in one blob of a manifest
MANIFESTS_KEPT: Final = 3  # complete manifests; older ones are removed
MANIFEST_BEGUN_US: Final = 24 * 3600 * 1_000_000  # an unfinished manifest of this age is abandoned
MANIFEST_S: Final = 3600.0  # how often upkeep exports one
MANIFEST_PROTECTS_US: Final = 7 * 24 * 3600 * 1_000_000  # the newest one protects its blobs for this long
BACKUP_LEASE_US: Final = 3600 * 1_000_000  # during a copy of the catalog, which renews no lease
REBUILD_IDS_SKIPPED: Final = 1_000_000  # ids that a lost catalog may have assigned after its last manifest

# Files from outside
METADATA_BYTES_MAX: Final = 256 * MIB  # of an archive's metadata file, which is read into memory whole
UNPACKED_BYTES_MAX: Final = 64 * 1024 * MIB  # unpacked size of a compressed file, if it needs a temporary file
ARROW_MESSAGE_BYTES_MAX: Final = 1024 * MIB  # decompressed size that one IPC message, or all dictionaries, may declare
ARROW_MESSAGE_ROWS_MAX: Final = 64 * MIB  # rows that one may declare; not bytes
JSON_DEPTH_MAX: Final = 64  # of a line of JSON whose columns are inferred

# Between brokers and clients
WIRE_JSON_BYTES_MAX: Final = 16 * MIB  # of the arguments of one call
WIRE_ANSWER_BYTES_MAX: Final = 512 * MIB  # of one message of a broker to its client: a large event, as text
WIRE_JSON_DEPTH_MAX: Final = 32  # levels of lists, objects and typed values in them
REMOTE_WAIT_S: Final = 20.0  # how long one call waits for a job to end, before the client asks again
RESULTS_AHEAD_MAX: Final = 256  # results of such a call that wait to be sent; then it waits
PROGRESS_REPORTS_MAX: Final = 64  # of one call that wait to be sent; older ones are dropped

# Catalog
CATALOG_PAGE_ROWS: Final = 1_000  # rows that one query of a listing returns
REQUEST_TRIES_MAX: Final = 5  # of a change whose answer was lost, if no caller would retry it
SCOPE_PAGE: Final = 64  # streams of a scope copied or deleted in one transaction
ALIASES_MAX: Final = 64  # of one stream
ANCESTORS_MAX: Final = 16  # deleted streams before its source that a copy can still name
FORMER_NAMES_MAX: Final = 16  # former names of a stream that still report the new name
CATALOG_LOCK_S: Final = 60.0  # how long a process waits for the lock before StoreBusy, and for an unreachable server
CATALOG_ANSWER_S: Final = 30.0  # how long PostgreSQL may take for one round trip, excluding waits for locks
CATALOG_LONG_S: Final = 3600.0  # the same for work on a whole catalog: a migration, a rebuild
WAKEUP_ANSWER_S: Final = 10.0  # the same for connections that only notify and listen
POSTGRES_CONNECT_S: Final = 10  # one attempt at a connection, unless the URL says otherwise
CONDITION_WAIT_S: Final = 1.0  # how often a waiting thread of this process re-checks its condition
TASK_END_S: Final = 300.0  # how long closing waits for a background task: longer than any request it may be making
POSTGRES_CONNECTIONS_MAX: Final = 16  # of one process, in addition to one that listens and one that notifies
LISTEN_POLL_US: Final = 1_000_000  # how often a listener polls, in case notifications are lost
WAL_PAGES_CHECKPOINT: Final = 4_096  # 16 MiB of write-ahead log trigger a checkpoint

# Brokers: rights and quotas
TOKENS_MAX: Final = 10_000  # of a store, as each broker holds all in memory
ROLES_MAX: Final = 1_000  # of a store, and of one principal
PRINCIPAL_CHARS_MAX: Final = 200  # of a principal's name
TOKEN_LIFETIME_US_MAX: Final = 1_000 * 365 * 24 * 3600 * 1_000_000  # 1,000 years
TOKEN_EXPIRED_KEPT_US: Final = 30 * 24 * 3600 * 1_000_000  # how long `token list` still shows an expired token
ACCESS_REFRESH_S: Final = 0.5  # how often a broker looks whether tokens or roles have changed
TLS_REFRESH_S: Final = 10.0  # how often a broker looks whether its certificate's files have changed
KEY_SET_S: Final = 300.0  # how often it fetches the keys of the identity provider
KEY_SET_AGAIN_S: Final = 10.0  # the shortest time between two fetches, where a token names an unknown key
KEY_SET_ANSWER_S: Final = 10.0  # how long the identity provider may take to answer
KEY_SET_BYTES_MAX: Final = MIB  # of the identity provider's answer
SIGNED_TOKENS_KEPT: Final = 10_000  # verified tokens that a broker remembers until they expire; as many refused ones
AUDIT_FLUSH_S: Final = 1.0  # how often a broker writes its notes to the audit stream
AUDIT_PENDING_MAX: Final = 10_000  # notes that wait to be written; further ones are dropped and counted
AUDIT_KEPT_US: Final = 365 * 24 * 3600 * 1_000_000  # how long the audit stream keeps its events: 365 days
ACCESS_STALE_S: Final = 30.0  # a broker that could not read the rights for this long refuses all calls

# Spark
SPARK_START_S: Final = 300.0  # until a session has started; then its Java process is killed
JAVA_ANSWER_S: Final = 60.0  # Spark's Java process that answers no question for this long is taken to be stopped
PIPELINE_STOP_S: Final = 300.0  # until the queries of a pipeline have ended after `Pipeline.stop`

# Deployed queries
DEPLOYMENT_TEXT_BYTES_MAX: Final = MIB  # of the statements of one version
DEPLOYMENT_PARAMETERS_MAX: Final = 1_000  # of one version
DEPLOYMENT_VERSIONS_MAX: Final = 100  # of a query that are kept
DEPLOYMENT_LEASE_US: Final = 10 * 1_000_000  # of a host, which renews it; then another host takes the query
DEPLOYMENT_LEASE_US_MIN: Final = 1_000_000  # the shortest that --lease takes
DEPLOYMENT_LEASE_US_MAX: Final = 24 * 3600 * 1_000_000  # the longest: a day
DEPLOYMENT_ATTEMPTS_MAX: Final = 3  # failures of a query in a row; then it is left alone until it is started again
DEPLOYMENT_BACKOFF_S_MAX: Final = 60.0  # before a query is run again; it begins with 0 and 1 s, and doubles
DEPLOYMENT_HEARD_S: Final = 10.0  # how long a caller waits for any host to take the question
DEPLOYMENT_ANSWER_S: Final = 120.0  # how long a caller waits for the host's answer: it may have to start Spark first
DEPLOYMENT_STATE_ROWS_MAX: Final = 1_000  # of a query's state that one answer holds
DEPLOYMENT_STATE_BYTES_MAX: Final = 512 * KIB  # as JSON; with more than one row
QUERY_CPUS_MAX: Final = 1_000_000  # that a query can say it needs
QUERY_CPUS: Final = 0.1  # that a host sets aside for a query, unless the query says how much it needs
QUERY_BYTES: Final = 150_000_000  # the same of memory
DRIVER_BYTES: Final = 1_400_000_000  # of a driver with its first query
DEPLOYMENT_STOP_S: Final = (
    120.0  # for a run that has not started, or is not to finish its micro-batch; then its driver is ended
)
DEPLOYMENT_TASKS_S: Final = 30.0  # for tasks that go on after their query has ended; then their driver is ended
DEPLOYMENT_LEAVE_S: Final = 10.0  # for a driver without queries to close the store, and to leave its cluster
DEPLOYMENT_STEADY_S: Final = 60.0  # a run that lasted this long ends the row of failures
PIPELINE_STATEMENTS_MAX: Final = 250  # of one file
PIPELINE_TOKENS_MAX: Final = 100_000  # of one statement, which Spark plans anew for each micro-batch
PIPELINE_NESTING_MAX: Final = 100  # of brackets, CASE and signs in each other: Spark recurses into them
DEPLOYMENT_FILES_MAX: Final = 32  # wheels, WebAssembly modules and resources of one version
DEPLOYMENT_FILES_BYTES_MAX: Final = 32 * MIB  # of these together
DEPLOYMENT_ALL_FILES_BYTES_MAX: Final = 512 * MIB  # of the files of all versions of all queries of a store
WHEEL_ENTRIES_MAX: Final = 10_000  # files in one wheel
WHEEL_UNPACKED_BYTES_MAX: Final = 64 * MIB  # of all of them, decompressed
WHEELS_UNPACKED_BYTES_MAX: Final = 256 * MIB  # of all wheels of one version
TEMPLATES_MAX: Final = 1_000  # of queries that a store keeps
CONFIGURATION_BYTES_MAX: Final = MIB  # of the file with a broker's settings
KEY_FILE_BYTES_MAX: Final = MIB  # with keys or certificates
SIGNATURE_FILE_BYTES_MAX: Final = 4 * KIB  # with the signature of a query
TRUSTED_KEYS_MAX: Final = 100  # public keys whose signatures a store accepts

# WebAssembly modules
MODULE_BYTES_MAX: Final = MIB  # of one module
MODULE_TEXT_BYTES_MAX: Final = 8 * MIB  # of one module that is written as text
MODULE_FUNCTION_BYTES_MAX: Final = 128 * KIB  # of the code of one function
MODULES_BYTES_MAX: Final = 64 * MIB  # of all versions of all modules of a store
MODULE_VERSIONS_MAX: Final = 20  # of a module that are kept
MODULE_FUNCTIONS_MAX: Final = 64  # of one module
MODULE_ARGUMENTS_MAX: Final = 16  # of one function
MODULE_ROWS_MAX: Final = 65_536  # given to a function at once
MODULE_TABLE_ROWS_MAX: Final = 1 << 20  # that one call of a function returns as a table
MODULE_COLUMNS_MAX: Final = 100  # of such a table
MODULE_MEMORY_BYTES_MAX: Final = 64 * MIB  # of one instance
MODULE_TABLE_ELEMENTS_MAX: Final = 65_536  # function pointers of one instance
MODULE_INSTANCES_MAX: Final = 8  # of one function that a query runs side by side
MODULE_CALL_S_MAX: Final = 5.0  # of one call
MODULE_TICK_S: Final = 0.05  # how exactly that time is kept
MODULE_IDLE_S: Final = 5.0  # without a call; then nothing keeps time until the next one
MODULE_CALL_INSTRUCTIONS: Final = 50_000_000  # that one call may execute, and the next for each of its rows
MODULE_ROW_INSTRUCTIONS: Final = 50_000  # for each row
MODULE_MESSAGE_BYTES_MAX: Final = 1_000  # of the message with which a function refuses its input

# Runs of several verbs in one call
RUN_STEPS_MAX: Final = 100  # of one run (POST /v1/run)
RUN_S_MAX: Final = 60.0  # no further step begins after this time
RUN_ANSWER_BYTES_MAX: Final = 8 * MIB  # of all results, as JSON
RUN_PINNED_BYTES_MAX: Final = 64 * KIB  # of a result that is kept under the run's request id
RUN_TRANSACTION_S_MAX: Final = (
    5.0  # as RUN_S_MAX, where the steps are one transaction, for which all other changes wait
)
RUN_TRANSACTION_KEPT_BYTES_MAX: Final = 1 * MIB  # of all its results, where they are kept under the run's request id

# Latest events by key
LATEST_BYTES_MAX: Final = 256 * MIB  # of the latest events that a process keeps of streams
LATEST_COMPACT_BYTES: Final = 32 * MIB  # of rows that are no longer the latest, besides as many as are
LATEST_KEY_BYTES: Final = 150  # the approximate memory of a key in Python
LATEST_STREAMS_MAX: Final = 64  # streams whose latest events a process keeps

# Arrow Flight
COMMAND_BYTES_MAX: Final = MIB  # of one command of Flight
FLIGHT_BATCH_BYTES: Final = 2 * MIB  # sent together, if so much is at hand
CONNECTION_BYTES_MAX: Final = 4 * MIB  # of one call: read ahead of its consumer, or accepted and not yet durable
CONNECTION_BATCHES_MAX: Final = 16  # of one append: accepted and not yet durable
FLIGHT_CHUNKS_MAX: Final = 1_024  # chunks of a byte stream in one message
FLIGHT_POLL_S: Final = 0.5  # how often a follower without events looks whether its client is gone
LOAD_POLICY_S: Final = 1.0  # how long a broker goes by a stream's load policy before it looks it up again
RIGHTS_RECHECK_S: Final = 5.0  # how often a call that lasts asks again whether it is still allowed

# Broker: HTTP and followers
HTTP_BODY_BYTES_MAX: Final = 64 * MIB  # of a request, after decompression too
HTTP_ARROW_BYTES_MAX: Final = 256 * MIB  # of a request's Arrow batches, decompressed
HTTP_SMALL_BYTES: Final = 64 * KIB  # a single event up to this size is appended without a thread of its own
HTTP_DIRECT_BODY_S: Final = 0.1  # how long its body may take to come, then its endpoint serves it
HTTP_PENDING_BYTES_MAX: Final = 16 * MIB  # single events of one stream that are not durable yet
HTTP_NAME_S: Final = 1.0  # how long a name, and its stream's schema, is used without looking it up again
HTTP_NAMES_MAX: Final = 4_096  # names kept that way
HTTP_WRITERS_MAX: Final = 256  # writers kept open, one a stream
HTTP_THREADS_MAX: Final = 16  # calls that wait for the catalog, or move many events, at the same time
HTTP_VERBS_MAX: Final = 16  # management verbs under way at the same time
HTTP_QUERIES_MAX: Final = 16  # calls that wait for a query, or for their turn to run one, at the same time
HTTP_PAGE_EVENTS: Final = 100  # of a page of JSON, unless the request says otherwise
HTTP_PAGE_EVENTS_MAX: Final = 10_000  # the most that a request may ask for
HTTP_PAGE_BYTES_MAX: Final = 8 * MIB  # a page ends here even if it holds fewer events
HTTP_ENCODED_BYTES: Final = 256 * KIB  # events of a long answer that are written as text together
HTTP_POINTERS_MAX: Final = 1_000  # pointers in the answer to an append; for more events there are only ranges
UPLOAD_BYTES_MAX: Final = 1 << 44  # of one file: 16 TiB
UPLOAD_PART_BYTES: Final = 4 * MIB  # of an upload, stored in one commit while the next is received
UPLOAD_LIFETIME_S: Final = 7 * 86_400.0  # default time after which an unfinished upload is removed
UPLOAD_MEMORY_BYTES: Final = 16 * MIB  # counted as held by a request that uploads
DURABLE_POLL_S: Final = 20.0  # a long poll of a Durable Stream is answered at the latest then
FOLLOW_IDLE_S: Final = 15.0  # after this long without events, a follower gets a sign of life
SOCKET_MESSAGE_BYTES_MAX: Final = 4 * KIB  # sent by a follower over a WebSocket, which has nothing to say
FOLLOW_AWAIT_S: Final = 0.5  # how often is looked for a stream that a follower waits for
FOLLOW_SEND_BYTES: Final = 64 * KIB  # handed to a follower's connection at a time
TAIL_ROWS_MAX: Final = 1_024  # rows in one batch of a shared tail
TAIL_KEPT_BYTES_MAX: Final = 8 * MIB  # recent batches of a shared tail, with their encoded forms
TAIL_LINGER_S: Final = 5.0  # how long a shared tail stays open without followers
TAIL_WOKEN_MAX: Final = 32  # followers served one after another before the event loop looks for other work
TAIL_SPACING_US: Final = 40  # per follower, between two deliveries to all: limits the cost of followers

# Sessions: what a broker holds for one client while the exchange lasts
SESSION_HEADER_BYTES_MAX: Final = MIB  # of one message, without its Arrow data
SESSION_QUEUE_BYTES_MAX: Final = 4 * MIB  # unanswered requests of one session; while it has more, none is read
SESSION_WAIT_S: Final = 5.0  # a request that waits for events is answered after this long in any case
SESSION_SILENT_S: Final = 60.0  # a session whose client gives no sign of life for this long ends
SESSION_PROBE_S: Final = 5.0  # how often an idle client is asked for a sign of life
SESSION_AUTHORIZE_S: Final = 5.0  # how often the client's rights are checked again
SESSION_OUTPUT_BYTES_MAX: Final = 64 * MIB  # the outputs of one commit of a group reader
SESSION_REOPEN_S: Final = 30.0  # for how long a client tries to reach a broker before its calls raise StoreUnavailable
SESSION_WATCH_S: Final = 1.0  # how often a broker looks for silent clients
CONSUMER_CHARS_MAX: Final = 32  # of the id by which a client continues a session elsewhere
SESSION_CLOSE_S: Final = 10.0  # for how long a client that closes a session waits for the broker
SESSION_PART_BYTES: Final = 4 * MIB  # more Arrow data is sent in parts of about this size
GRPC_SESSIONS_MAX: Final = 256  # requests of group readers and transactions that gRPC carries out at the same time
GROUP_BATCHES_AHEAD_MAX: Final = (
    1_024  # a gRPC group reader's requested batches, and its batches that are not committed
)
GROUP_PROCESSING_S_MAX: Final = 300.0  # a gRPC group reader whose caller asks nothing for this long leaves its group
TRANSACTION_UNFLUSHED_BYTES_MAX: Final = (
    64 * MIB
)  # what a broker accepts before a flush; most of it is in blobs already
TRANSACTION_CLIENT_BYTES_MAX: Final = 4 * MIB  # a client that has sent more than this flushes
BROKER_SILENT_S: Final = 0.9  # of one broker of several: after twice this its calls fail, and go to the next one
BROKER_ALONE_SILENT_S: Final = 10.0  # the same where there is no other broker to go to
HEARTBEAT_S: Final = 1.0  # how long a client waits for the answer to a heartbeat
REMOTE_CHUNK_BYTES: Final = 256 * KIB  # single events gathered into one batch, while earlier ones are unanswered
REMOTE_CHUNK_BYTES_MAX: Final = MIB  # and at most; the writing call closes the batch then
REMOTE_BATCH_BYTES: Final = 2 * MIB  # a written table is cut to batches of about this size, unless it is atomic
REMOTE_WINDOW_BYTES_MAX: Final = 16 * MIB  # sent by a remote writer, and not answered
REMOTE_WRITER_BYTES_MAX: Final = 32 * MIB  # a remote writer's call blocks while more than this is not answered
SHARED_READ_BYTES_MAX: Final = 4 * MIB  # entries of a revisioned stream in one answer
NOTIFICATIONS_ANSWER_MAX: Final = 256  # notifications in one answer
