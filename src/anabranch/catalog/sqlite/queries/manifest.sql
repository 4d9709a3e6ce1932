-- Whole tables, page by page in the order of their keys: what manifests are made of, and what loads them.
-- The columns and their order are those of anabranch.catalog.tables.

-- name: export_scopes
select name, tags, created_at
from scopes where name > ? order by name limit ?;

-- name: export_streams
select id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number
from streams where id > ? order by id limit ?;

-- name: export_schemas
select stream, version, columns, key_column, time_column, raw
from schemas where (stream, version) > (?, ?) order by stream, version limit ?;

-- name: export_segments
select stream, segment, low, high, retired, head
from segments where (stream, segment) > (?, ?) order by stream, segment limit ?;

-- name: export_logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high
from logs where id > ? order by id limit ?;

-- name: export_spans
select stream, segment, "offset", log, start, stop
from spans where (stream, segment, "offset") > (?, ?, ?) order by stream, segment, "offset" limit ?;

-- name: export_blobs
select key, id, size, encoding, begun_at, dead_at, (select e.checksum from extents e where e.blob = b.id limit 1)
from blobs b where key > ? order by key limit ?;

-- name: export_extents
select log, start, stop, blob, encoding, at, length, row, schema, checksum, appended_low, appended_high, event_low,
       event_high, event_reach, size_end, data
from extents where (log, start) > (?, ?) order by log, start limit ?;

-- name: export_writers
select log, writer, next, fence, recent, seen_at
from writers where (log, writer) > (?, ?) order by log, writer limit ?;

-- name: export_requests
select id, operation, result, at
from requests where id > ? order by id limit ?;

-- name: export_changes
select sequence, stream, at, kind, detail
from changes where sequence > ? order by sequence limit ?;

-- name: export_pieces
select kind, name, value
from pieces where (kind, name) > (?, ?) order by kind, name limit ?;

-- name: load_scopes
insert into scopes (name, tags, created_at)
values (?, ?, ?);

-- name: load_streams
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: load_schemas
insert into schemas (stream, version, columns, key_column, time_column, raw)
values (?, ?, ?, ?, ?, ?);

-- name: load_segments
insert into segments (stream, segment, low, high, retired, head)
values (?, ?, ?, ?, ?, ?);

-- name: load_logs
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: load_spans
insert into spans (stream, segment, "offset", log, start, stop)
values (?, ?, ?, ?, ?, ?);

-- name: load_blobs
insert into blobs (key, id, size, encoding, begun_at, dead_at)
values (?, ?, ?, ?, ?, ?);

-- name: load_extents
insert into extents (log, start, stop, blob, encoding, at, length, row, schema, checksum, appended_low,
    appended_high, event_low, event_high, event_reach, size_end, data)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: load_writers
insert into writers (log, writer, next, fence, recent, seen_at)
values (?, ?, ?, ?, ?, ?);

-- name: load_requests
insert into requests (id, operation, result, at)
values (?, ?, ?, ?);

-- name: load_changes
insert into changes (sequence, stream, at, kind, detail)
values (?, ?, ?, ?, ?);

-- name: load_pieces
insert into pieces (kind, name, value)
values (?, ?, ?);

-- name: wipe_scopes
delete from scopes;

-- name: wipe_streams
delete from streams;

-- name: wipe_schemas
delete from schemas;

-- name: wipe_segments
delete from segments;

-- name: wipe_logs
delete from logs;

-- name: wipe_spans
delete from spans;

-- name: wipe_blobs
delete from blobs;

-- name: wipe_extents
delete from extents;

-- name: wipe_writers
delete from writers;

-- name: wipe_requests
delete from requests;

-- name: wipe_changes
delete from changes;

-- name: wipe_pieces
delete from pieces;

-- SQLite lists a table's last id once a row was inserted.
-- name: list_sequences
insert into sqlite_sequence (name, seq)
select t.name, 0 from (select 'logs' as name union all select 'blobs' union all select 'changes') t
where not exists (select 1 from sqlite_sequence s where s.name = t.name);

-- Ids that a lost catalog may have given are not given again.
-- name: skip_ids
update sqlite_sequence set seq = seq + ? where name in ('logs', 'blobs', 'changes');
