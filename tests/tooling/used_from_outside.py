# ruff: noqa: B018, F821
# mypy: ignore-errors
"""Names that the package itself never uses, and why they stay. `./dev check` passes this file to vulture, which then
takes them for used; any other unused name fails the check.

If it names something new: remove it, unless users or a library call it. What only tests use belongs into the tests.
"""

# The public API: methods and fields for users.
_._repr_html_  # notebooks call it
_.active  # Pipeline
_.caught_up  # Pipeline
_.dataframe  # Pipeline
_.delivered  # Subscription
_.duplicates  # of a reader's audit
_.elastic  # ReaderGroup
_.evolve  # store.streams
_.failed_at  # UpkeepFailure
_.fault  # Periodic: an unexpected error that a later round has hidden
_.fetches  # RangeCache
_.forget_listener  # store.notifications
_.generate_cut  # ReaderGroup
_.held_bytes  # of a read over ranges
_.import_  # store.archives
_.latency_us  # of a reader's audit
_.memory_peak  # Job
_.on_checkpoint  # GroupReader
_.on_end_of_data  # the kinds of notifications
_.on_passed
_.on_readers
_.on_scaling
_.on_segments
_.on_truncation
_.predecessors  # StreamView
_.reader_offline  # ReaderGroup
_.successors  # StreamView
_.synchronizer  # store.shared_state
_.unconfirmed_attachments  # store.archives

_.deleted_at  # of the results of a deleted pipeline: for who reads the row

# The columns of a pipeline's progress, stored as JSON and read by name.
_.keeps_late
_.lag_s
_.late_stream
_.run_late
_.run_read
_.stages_ms

# Called by Python itself, or through a protocol of it.
__dir__
__getattr__
blocking  # Tasks.lock
readinto  # io.RawIOBase
writable  # io.RawIOBase
trace  # __exit__

# Verbs, which the command line finds by the table of verbs, or typer by a decorator.
_.import_
_.demo
_.rich_help_panel  # typer reads it
_.top
_.list_groups
_.list_jobs
_.list_modules
_.list_pipelines
_.list_queries
_.list_scopes
_.list_streams
_.list_watermarks
_.list_roles
_.list_tokens
_.metrics
_.unalias
_.ms  # a choice of --time-unit

# Of Arrow, DuckDB, NumPy and psycopg.
_.scanner
_.to_reader
_.unwrap_key
_.wrap_key
master_key_identifier
_.writeable  # of a NumPy array

_._pgconn  # of psycopg's errors

# Called by Spark.
_.handleInputRows
_.handleExpiredTimer
_.getDefaultReadLimit
_.initialOffset
_.latestOffset
_.partitions
_.prepareForTriggerAvailableNow
_.reportLatestOffset
_.streamReader
_.streamWriter

# Called by Typer.
_.format_help
formatter

# Written to the documentation by docs/spark_options_page.py.
meaning

# Of the report of `Store.write`.
_.rejected

# What the front ends of a broker are given.
authenticate
authorize
admit
allows
authorize_place
principal
certificate
resource
peer
OpenGuard
_.connections  # of a quota, by name
_.followers

# Settings of a broker that are read by name.
principal_calls_per_s
principal_bytes_per_s
principal_connections
principal_followers
principal_memory_bytes
total_calls_per_s
total_bytes_per_s
total_connections
total_followers
total_memory_bytes

# Called and read by pydantic-settings.
model_config
_.settings_customise_sources
settings_cls
env_settings
dotenv_settings
file_secret_settings

# Registered with by those who serve followers.
_.on_start

# Read by uvicorn.
_.should_exit
_.force_exit

# What the front ends of a broker share.
_.http  # of an error's status
_.grpc
error_to_json
error_from_json
parse_bytes
_.repeatable
_.appended_times

# pyarrow calls the methods of a Flight server by name.
_.do_action
_.do_exchange
_.do_get
_.do_put
_.get_flight_info
_.get_schema
_.list_actions
_.list_flights
_.start_call
_.call_completed
_.sending_headers

# What protoc generates.
_._loaded_options
_._serialized_options
_._serialized_end
_._serialized_start
_.redirect_request  # of urllib

_.__signature__  # of a function that DuckDB inspects

# Settings of wasmtime.
_.consume_fuel
_.epoch_interruption
_.shared_memory
_.wasm_exceptions
_.wasm_function_references
_.wasm_gc
_.wasm_memory64
_.wasm_multi_memory
_.wasm_relaxed_simd
_.parallel_compilation

# What Python's readers of files ask of a raw stream.
_.readable
_.wasm_stack_switching
_.wasm_threads

# What sqlglot asks of a dialect.
_.IDENTIFIERS
_.Parser
_.QUOTES
_.SAFE_DIVISION
_.STRICT_CAST
_.STRING_ESCAPES
_.Tokenizer
_.TYPED_DIVISION
