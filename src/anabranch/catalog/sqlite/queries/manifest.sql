-- Whole tables, page by page in the order of their keys: what manifests are made of, and what loads them.
-- The columns and their order are those of anabranch.catalog.tables; each result ends with the digest of the row.

-- name: export_scopes
select name, tags, created_at, digest
from scopes where name > ? order by name limit ?;

-- name: export_streams
select id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments, spans, digest
from streams where id > ? order by id limit ?;

-- name: export_schemas
select stream, version, columns, key_column, time_column, raw, digest
from schemas where (stream, version) > (?, ?) order by stream, version limit ?;

-- name: export_segments
select stream, segment, low, high, retired, head, digest
from segments where (stream, segment) > (?, ?) order by stream, segment limit ?;

-- name: export_logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest
from logs where id > ? order by id limit ?;

-- name: export_spans
select stream, segment, "offset", log, start, stop, digest
from spans where (stream, segment, "offset") > (?, ?, ?) order by stream, segment, "offset" limit ?;

-- name: export_blobs
select key, id, size, encoding, begun_at, dead_at, (select e.checksum from extents e where e.blob = b.id limit 1),
       b.digest
from blobs b where key > ? order by key limit ?;

-- name: export_extents
select e.log, e.start, e.stop, e.blob, e.encoding, e.at, e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, b.key, e.digest
from extents e left join blobs b on b.id = e.blob
where (e.log, e.start) > (?, ?) order by e.log, e.start limit ?;

-- Like `export_extents`, without the inlined bytes.
-- name: audit_extents
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.digest
from extents e left join blobs b on b.id = e.blob
where (e.log, e.start) > (?, ?) order by e.log, e.start limit ?;

-- name: export_writers
select log, writer, next, fence, recent, seen_at, digest
from writers where (log, writer) > (?, ?) order by log, writer limit ?;

-- name: export_producers
select stream, producer, epoch, last, answers, seen_at, digest
from producers where (stream, producer) > (?, ?) order by stream, producer limit ?;

-- name: export_requests
select id, operation, result, at, digest
from requests where id > ? order by id limit ?;

-- name: export_changes
select sequence, stream, at, kind, detail, digest
from changes where sequence > ? order by sequence limit ?;

-- name: export_aliases
select name, stream, digest
from aliases where name > ? order by name limit ?;

-- name: export_states
select kind, key, lookup, value, digest
from states where (kind, key) > (?, ?) order by kind, key limit ?;

-- name: export_leases
select id, kind, holder, begun_at, expires_at, digest
from leases where id > ? order by id limit ?;

-- name: export_meta
select name, value, digest
from meta where name > ? order by name limit ?;

-- Pages begin after an empty key, which no undamaged row has.
-- name: empty_keys
select 'scopes' where exists (select 1 from scopes where name = '')
union all
select 'blobs' where exists (select 1 from blobs where key = '')
union all
select 'aliases' where exists (select 1 from aliases where name = '')
union all
select 'requests' where exists (select 1 from requests where id = '')
union all
select 'leases' where exists (select 1 from leases where id = '')
union all
select 'meta' where exists (select 1 from meta where name = '');

-- name: load_scopes
insert into scopes (name, tags, created_at, digest)
values (?1, ?2, ?3,
        row_digest(?1, ?2, ?3));

-- name: load_streams
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments,
    spans, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12));

-- name: load_schemas
insert into schemas (stream, version, columns, key_column, time_column, raw, digest)
values (?1, ?2, ?3, ?4, ?5, ?6,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6));

-- name: load_segments
insert into segments (stream, segment, low, high, retired, head, digest)
values (?1, ?2, ?3, ?4, ?5, ?6,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6));

-- name: load_logs
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9));

-- name: load_spans
insert into spans (stream, segment, "offset", log, start, stop, digest)
values (?1, ?2, ?3, ?4, ?5, ?6,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6));

-- name: load_blobs
insert into blobs (key, id, size, encoding, begun_at, dead_at, digest)
values (?1, ?2, ?3, ?4, ?5, ?6,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6));

-- name: load_extents
insert into extents (log, start, stop, blob, encoding, at, length, row, schema, checksum, appended_low, appended_high,
    event_low, event_high, event_reach, size_end, data, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
        row_digest(?1, ?2, ?3, ?4, (select key from blobs where id = ?4), ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
                   ?15, ?16));

-- name: load_writers
insert into writers (log, writer, next, fence, recent, seen_at, digest)
values (?1, ?2, ?3, ?4, ?5, ?6,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6));

-- name: load_producers
insert into producers (stream, producer, epoch, last, answers, seen_at, digest)
values (?1, ?2, ?3, ?4, ?5, ?6,
        row_digest(?1, ?2, ?3, ?4, ?5, ?6));

-- name: load_requests
insert into requests (id, operation, result, at, digest)
values (?1, ?2, ?3, ?4,
        row_digest(?1, ?2, ?3, ?4));

-- name: load_changes
insert into changes (sequence, stream, at, kind, detail, digest)
values (?1, ?2, ?3, ?4, ?5,
        row_digest(?1, ?2, ?3, ?4, ?5));

-- name: load_aliases
insert into aliases (name, stream, digest)
values (?1, ?2,
        row_digest(?1, ?2));

-- name: load_states
insert into states (kind, key, lookup, value, digest)
values (?1, ?2, ?3, ?4,
        row_digest(?1, ?2, ?3, ?4));

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

-- name: wipe_producers
delete from producers;

-- name: wipe_requests
delete from requests;

-- name: wipe_changes
delete from changes;

-- name: wipe_aliases
delete from aliases;

-- name: wipe_states
delete from states;

-- SQLite lists a table's last id once a row was inserted.
-- name: list_sequences
insert into sqlite_sequence (name, seq)
select t.name, 0 from (select 'logs' as name union all select 'blobs' union all select 'changes') t
where not exists (select 1 from sqlite_sequence s where s.name = t.name);

-- Ids that a lost catalog may have assigned are not assigned again.
-- name: skip_ids
update sqlite_sequence set seq = seq + ? where name in ('logs', 'blobs', 'changes');
