-- Whole tables, page by page in the order of their keys: what manifests are made of, and what loads them.
-- The columns and their order are those of anabranch.catalog.tables.

-- name: export_scopes
select name, tags, created_at
from scopes where name > %s order by name limit %s;

-- name: export_streams
select id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number
from streams where id > %s order by id limit %s;

-- name: export_schemas
select stream, version, columns, key_column, time_column, raw
from schemas where (stream, version) > (%s, %s) order by stream, version limit %s;

-- name: export_segments
select stream, segment, low, high, retired, head
from segments where (stream, segment) > (%s, %s) order by stream, segment limit %s;

-- name: export_logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high
from logs where id > %s order by id limit %s;

-- name: export_spans
select stream, segment, "offset", log, start, stop
from spans where (stream, segment, "offset") > (%s, %s, %s) order by stream, segment, "offset" limit %s;

-- name: export_blobs
select key, id, size, encoding, begun_at, dead_at, (select e.checksum from extents e where e.blob = b.id limit 1)
from blobs b where key > %s order by key limit %s;

-- name: export_extents
select log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high,
       event_low, event_high, event_reach, size_end, data
from extents where (log, start) > (%s, %s) order by log, start limit %s;

-- name: export_writers
select log, writer, next, fence, recent, seen_at
from writers where (log, writer) > (%s, %s) order by log, writer limit %s;

-- name: export_requests
select id, operation, result, "at"
from requests where id > %s order by id limit %s;

-- name: export_changes
select sequence, stream, "at", kind, detail
from changes where sequence > %s order by sequence limit %s;

-- name: export_pieces
select kind, name, value
from pieces where (kind, name) > (%s, %s) order by kind, name limit %s;

-- name: load_scopes
insert into scopes (name, tags, created_at)
values (%s, %s, %s);

-- name: load_streams
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: load_schemas
insert into schemas (stream, version, columns, key_column, time_column, raw)
values (%s, %s, %s, %s, %s, %s);

-- name: load_segments
insert into segments (stream, segment, low, high, retired, head)
values (%s, %s, %s, %s, %s, %s);

-- name: load_logs
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: load_spans
insert into spans (stream, segment, "offset", log, start, stop)
values (%s, %s, %s, %s, %s, %s);

-- name: load_blobs
insert into blobs (key, id, size, encoding, begun_at, dead_at)
values (%s, %s, %s, %s, %s, %s);

-- name: load_extents
insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low,
    appended_high, event_low, event_high, event_reach, size_end, data)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: load_writers
insert into writers (log, writer, next, fence, recent, seen_at)
values (%s, %s, %s, %s, %s, %s);

-- name: load_requests
insert into requests (id, operation, result, "at")
values (%s, %s, %s, %s);

-- name: load_changes
insert into changes (sequence, stream, "at", kind, detail)
values (%s, %s, %s, %s, %s);

-- name: load_pieces
insert into pieces (kind, name, value)
values (%s, %s, %s);

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

-- name: lock_tables
lock table scopes, streams, schemas, segments, logs, spans, blobs, extents, writers, requests, changes, pieces
    in access exclusive mode;

-- Ids that a lost catalog may have given are not given again.
-- name: skip_logs
select setval(pg_get_serial_sequence('logs', 'id'), %s + greatest(
    nextval(pg_get_serial_sequence('logs', 'id')), (select max(id) from logs)));

-- name: skip_blobs
select setval(pg_get_serial_sequence('blobs', 'id'), %s + greatest(
    nextval(pg_get_serial_sequence('blobs', 'id')), (select max(id) from blobs)));

-- name: skip_changes
select setval(pg_get_serial_sequence('changes', 'sequence'), %s + greatest(
    nextval(pg_get_serial_sequence('changes', 'sequence')), (select max(sequence) from changes)));
