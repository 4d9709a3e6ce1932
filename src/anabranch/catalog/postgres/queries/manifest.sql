-- Whole tables, page by page in the order of their keys: what manifests are made of, and what loads them.
-- The columns and their order are those of anabranch.catalog.tables; each result ends with the digest of the row,
-- or whether it matches.

-- name: export_scopes
select name, tags, created_at, sound(scopes)
from scopes where name > %s order by name limit %s;

-- name: export_streams
select id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments, spans,
       sound(streams)
from streams where id > %s order by id limit %s;

-- name: export_schemas
select stream, version, columns, key_column, time_column, raw, sound(schemas)
from schemas where (stream, version) > (%s, %s) order by stream, version limit %s;

-- name: export_segments
select stream, segment, low, high, retired, head, sound(segments)
from segments where (stream, segment) > (%s, %s) order by stream, segment limit %s;

-- name: export_logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, sound(logs)
from logs where id > %s order by id limit %s;

-- name: export_spans
select stream, segment, "offset", log, start, stop, sound(spans)
from spans where (stream, segment, "offset") > (%s, %s, %s) order by stream, segment, "offset" limit %s;

-- name: export_blobs
select key, id, size, encoding, begun_at, dead_at, (select e.checksum from extents e where e.blob = b.id limit 1),
       sound(b)
from blobs b where key > %s order by key limit %s;

-- name: export_extents
select e.log, e.start, e.stop, e.blob, e.encoding, e."at", e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, b.key, sound(e, b.key)
from extents e left join blobs b on b.id = e.blob
where (e.log, e.start) > (%s, %s) order by e.log, e.start limit %s;

-- Like `export_extents`, without the inlined bytes.
-- name: audit_extents
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, sound(e, b.key)
from extents e left join blobs b on b.id = e.blob
where (e.log, e.start) > (%s, %s) order by e.log, e.start limit %s;

-- name: export_writers
select log, writer, next, fence, recent, seen_at, sound(writers)
from writers where (log, writer) > (%s, %s) order by log, writer limit %s;

-- name: export_producers
select stream, producer, epoch, last, answers, seen_at, sound(producers)
from producers where (stream, producer) > (%s, %s) order by stream, producer limit %s;

-- name: export_requests
select id, operation, result, "at", sound(requests)
from requests where id > %s order by id limit %s;

-- name: export_changes
select sequence, stream, "at", kind, detail, sound(changes)
from changes where sequence > %s order by sequence limit %s;

-- name: export_aliases
select name, stream, sound(aliases)
from aliases where name > %s order by name limit %s;

-- name: export_states
select kind, key, lookup, value, sound(states)
from states where (kind, key) > (%s, %s) order by kind, key limit %s;

-- name: export_leases
select id, kind, holder, begun_at, expires_at, sound(leases)
from leases where id > %s order by id limit %s;

-- name: export_meta
select name, value, sound(meta)
from meta where name > %s order by name limit %s;

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
select name, tags, created_at,
       scopes_digest(name, tags, created_at)
from (values (%s::text, %s::text, %s::bigint))
     as v (name, tags, created_at);

-- name: load_streams
insert into streams (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments,
    spans, digest)
select id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments, spans,
       streams_digest(id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number,
           segments, spans)
from (values (%s::bigint, %s::text, %s::text, %s::integer, %s::text, %s::bigint, %s::boolean, %s::integer, %s::bigint,
              %s::bigint, %s::bigint, %s::bigint))
     as v (id, scope, name, schema_version, tags, created_at, sealed, version, epoch, next_number, segments, spans);

-- name: load_schemas
insert into schemas (stream, version, columns, key_column, time_column, raw, digest)
select stream, version, columns, key_column, time_column, raw,
       schemas_digest(stream, version, columns, key_column, time_column, raw)
from (values (%s::bigint, %s::integer, %s::bytea, %s::text, %s::text, %s::boolean))
     as v (stream, version, columns, key_column, time_column, raw);

-- name: load_segments
insert into segments (stream, segment, low, high, retired, head, digest)
select stream, segment, low, high, retired, head,
       segments_digest(stream, segment, low, high, retired, head)
from (values (%s::bigint, %s::bigint, %s::text, %s::text, %s::bigint, %s::bigint))
     as v (stream, segment, low, high, retired, head);

-- name: load_logs
insert into logs (id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest)
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high,
       logs_digest(id, stream, length, sealed, fence, low_water, size, appended_at, event_high)
from (values (%s::bigint, %s::bigint, %s::bigint, %s::boolean, %s::bigint, %s::bigint, %s::bigint, %s::bigint,
              %s::bigint))
     as v (id, stream, length, sealed, fence, low_water, size, appended_at, event_high);

-- name: load_spans
insert into spans (stream, segment, "offset", log, start, stop, digest)
select stream, segment, "offset", log, start, stop,
       spans_digest(stream, segment, "offset", log, start, stop)
from (values (%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint))
     as v (stream, segment, "offset", log, start, stop);

-- name: load_blobs
insert into blobs (key, id, size, encoding, begun_at, dead_at, digest)
select key, id, size, encoding, begun_at, dead_at,
       blobs_digest(key, id, size, encoding, begun_at, dead_at)
from (values (%s::text, %s::bigint, %s::bigint, %s::text, %s::bigint, %s::bigint))
     as v (key, id, size, encoding, begun_at, dead_at);

-- name: load_extents
insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low,
                     appended_high, event_low, event_high, event_reach, size_end, data, digest)
select v.log, v.start, v.stop, v.blob, v.encoding, v."at", v.length, v.row, v.schema, v.checksum, v.appended_low,
       v.appended_high, v.event_low, v.event_high, v.event_reach, v.size_end, v.data,
       extents_digest(v.log, v.start, v.stop, v.blob, b.key, v.encoding, v."at", v.length, v.row, v.schema,
                      v.checksum, v.appended_low, v.appended_high, v.event_low, v.event_high, v.event_reach,
                      v.size_end)
from (values (%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint,
              %s::integer, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::bigint,
              %s::bytea))
     as v (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low, appended_high,
           event_low, event_high, event_reach, size_end, data)
left join blobs b on b.id = v.blob;

-- name: load_writers
insert into writers (log, writer, next, fence, recent, seen_at, digest)
select log, writer, next, fence, recent, seen_at,
       writers_digest(log, writer, next, fence, recent, seen_at)
from (values (%s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint[], %s::bigint))
     as v (log, writer, next, fence, recent, seen_at);

-- name: load_producers
insert into producers (stream, producer, epoch, last, answers, seen_at, digest)
select stream, producer, epoch, last, answers, seen_at,
       producers_digest(stream, producer, epoch, last, answers, seen_at)
from (values (%s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint[], %s::bigint))
     as v (stream, producer, epoch, last, answers, seen_at);

-- name: load_requests
insert into requests (id, operation, result, "at", digest)
select id, operation, result, "at",
       requests_digest(id, operation, result, at)
from (values (%s::text, %s::text, %s::text, %s::bigint))
     as v (id, operation, result, "at");

-- name: load_changes
insert into changes (sequence, stream, "at", kind, detail, digest)
select sequence, stream, "at", kind, detail,
       changes_digest(sequence, stream, at, kind, detail)
from (values (%s::bigint, %s::bigint, %s::bigint, %s::text, %s::text))
     as v (sequence, stream, "at", kind, detail);

-- name: load_aliases
insert into aliases (name, stream, digest)
select name, stream,
       aliases_digest(name, stream)
from (values (%s::text, %s::bigint))
     as v (name, stream);

-- name: load_states
insert into states (kind, key, lookup, value, digest)
select kind, key, lookup, value,
       states_digest(kind, key, lookup, value)
from (values (%s::text, %s::text, %s::text, %s::text))
     as v (kind, key, lookup, value);

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

-- name: lock_tables
lock table scopes, streams, schemas, segments, logs, spans, blobs, extents, writers, producers, requests, changes,
    aliases, states in access exclusive mode;

-- Ids that a lost catalog may have assigned are not assigned again.
-- name: skip_logs
select setval(pg_get_serial_sequence('logs', 'id'), %s + greatest(
    nextval(pg_get_serial_sequence('logs', 'id')), (select max(id) from logs)));

-- name: skip_blobs
select setval(pg_get_serial_sequence('blobs', 'id'), %s + greatest(
    nextval(pg_get_serial_sequence('blobs', 'id')), (select max(id) from blobs)));

-- name: skip_changes
select setval(pg_get_serial_sequence('changes', 'sequence'), %s + greatest(
    nextval(pg_get_serial_sequence('changes', 'sequence')), (select max(sequence) from changes)));
