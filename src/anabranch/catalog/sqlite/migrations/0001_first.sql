-- The first catalog. Key ranges are text of 17 hex digits, since 2**64 fits no SQLite integer.
-- Times are µs since 1970 UTC. Booleans are 0 and 1.
-- Each row ends with a digest of its values but `data`; docs/explanation/formats.md says how it is made.

create table meta (name text primary key, value, digest integer) without rowid;

create table scopes (
    name text primary key,
    tags text not null,
    created_at integer not null,
    digest integer not null
) without rowid;

create table streams (
    id integer primary key,                -- random, 63 bits
    scope text not null references scopes (name),
    name text not null,
    schema_version integer not null,
    tags text not null,
    created_at integer not null,
    sealed integer not null,
    version integer not null,
    epoch integer not null,
    next_number integer not null,
    segments integer not null,             -- how many rows of that table it has, to detect
    spans integer not null,                -- rows that are lost or have a damaged key
    digest integer not null,
    unique (scope, name)
);

create table schemas (
    stream integer not null,               -- kept while a log of the stream lives, so no foreign key
    version integer not null,
    columns blob not null,                 -- an Arrow IPC schema message
    key_column text,
    time_column text,
    raw integer not null,
    digest integer not null,
    primary key (stream, version)
) without rowid;

create table segments (
    stream integer not null references streams (id),
    segment integer not null,              -- epoch << 32 | number
    low text not null,
    high text not null,
    retired integer,
    head integer not null,
    digest integer not null,
    primary key (stream, segment)
) without rowid;

create table spans (
    stream integer not null references streams (id),
    segment integer not null,
    "offset" integer not null,
    log integer not null references logs (id),
    start integer not null,
    stop integer,                          -- null: follows the log
    digest integer not null,
    primary key (stream, segment, "offset")
) without rowid;
create index spans_by_log on spans (log, start);

create table logs (
    id integer primary key autoincrement,  -- ids are never used again
    stream integer not null,               -- whose schema versions its extents carry
    length integer not null,
    sealed integer not null,
    fence integer not null,
    low_water integer not null,
    size integer not null,
    appended_at integer not null,
    event_high integer,
    digest integer not null
);

create table extents (
    log integer not null references logs (id),
    start integer not null,
    stop integer not null,
    blob integer references blobs (id),    -- null: inline
    encoding text not null,
    at integer not null,
    length integer not null,
    row integer not null,
    schema integer not null,
    checksum integer not null,
    appended_low integer not null,
    appended_high integer not null,
    event_low integer,
    event_high integer,
    event_reach integer,                   -- greatest event time of the log up to here; never decreases, so it can be searched
    size_end integer not null,
    digest integer not null,
    data blob,
    primary key (log, start)
) without rowid;
create index extents_by_blob on extents (blob) where blob is not null;

create table writers (
    log integer not null references logs (id),
    writer text not null,
    next integer not null,
    fence integer not null,
    recent blob not null,                  -- (first, count, start, appended_at, fence) as 5 × int64, little-endian
    seen_at integer not null,
    digest integer not null,
    primary key (log, writer)
) without rowid;

create table blobs (
    id integer primary key autoincrement,
    key text not null unique,
    size integer not null,
    encoding text not null,
    begun_at integer not null,
    dead_at integer,
    digest integer not null
);

create table leases (
    id text primary key,
    kind text not null,
    holder text not null,
    begun_at integer not null,
    expires_at integer not null,
    digest integer not null
) without rowid;

create table requests (
    id text primary key,
    operation text not null,
    result text not null,
    at integer not null,
    digest integer not null
) without rowid;

create table changes (
    sequence integer primary key autoincrement,
    stream integer,
    at integer not null,
    kind text not null,
    detail text not null,
    digest integer not null
);

-- Additional names of streams. No foreign key: an alias of a deleted stream is dangling until it is removed.
create table aliases (
    name text primary key,      -- scope/name
    stream integer not null,
    digest integer not null
) without rowid;
create index aliases_by_stream on aliases (stream, name);

-- The state of features: values of the kinds that anabranch.catalog.state declares, as JSON.
create table states (
    kind text not null,
    key text not null,
    lookup text,                -- by which the row is found other than by its key
    value text not null,
    digest integer not null,
    primary key (kind, key)
) without rowid;
create index states_by_lookup on states (kind, lookup, key) where lookup is not null;
