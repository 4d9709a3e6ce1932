-- Statements that only read.

-- name: scopes
select name, tags, created_at from scopes order by name;

-- name: scope
select name, tags, created_at from scopes where name = %s;

-- name: streams
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.scope >= coalesce(%(scope)s::text, '') and s.scope <= coalesce(%(scope)s, U&'\+10FFFF')
  and (s.scope, s.name) > (%(after_scope)s, %(after_name)s)
order by s.scope, s.name limit %(limit)s;

-- name: stream_by_name
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.scope = %s and s.name = %s;

-- name: stream_by_alias
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from pieces p
join streams s on s.id = (p.value::json ->> 'stream')::bigint
join schemas c on c.stream = s.id and c.version = s.schema_version
where p.kind = 'alias' and p.name = %s;

-- name: aliases
select p.name, s.id, s.scope, s.name
from pieces p join streams s on s.id = (p.value::json ->> 'stream')::bigint
where p.kind = 'alias' and p.name > %(after)s and p.name < %(below)s
order by p.name limit %(limit)s;

-- name: stream_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id = %s;

-- name: streams_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       c.columns, c.key_column, c.time_column, c.raw
from streams s join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id = any (%s);

-- name: segments_of_streams
select stream, segment, low, high, retired, head from segments where stream = any (%s) order by stream, segment;

-- name: spans_of_streams
select stream, segment, "offset", log, start, stop from spans where stream = any (%s)
order by stream, segment, "offset";

-- name: fragmented
select stream, segment from spans group by stream, segment having count(*) >= %s
order by count(*) desc, stream, segment limit %s;

-- name: logs_of_streams
select distinct v.stream, l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high
from spans v join logs l on l.id = v.log where v.stream = any (%s) order by v.stream, l.id;

-- name: schema
select columns, key_column, time_column, raw from schemas where stream = %s and version = %s;

-- name: segments
select segment, low, high, retired, head from segments where stream = %s order by segment;

-- name: spans
select segment, "offset", log, start, stop from spans where stream = %s order by segment, "offset";

-- name: spans_of_log
select stream, segment, "offset", log, start, stop from spans where log = %s order by start, stream, segment;

-- name: logs_of_stream
select l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high
from logs l where l.id in (select log from spans where stream = %s);

-- name: log
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high from logs where id = %s;

-- name: logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high
from logs where id = any (%s);

-- name: logs_after
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high
from logs where id > %s order by id limit %s;

-- The first extent that can intersect is the last one that begins at or before the start.
-- name: extents
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from extents e left join blobs b on b.id = e.blob
where e.log = %(log)s and e.stop > %(start)s and e.start < %(stop)s
  and e.start >= coalesce((select max(start) from extents where log = %(log)s and start <= %(start)s), 0)
order by e.start limit %(limit)s;

-- Each span by itself, so that no more than the limit is looked at in any of them.
-- name: extents_of_segment
select s."offset", e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from spans s
cross join lateral (
    select * from extents x
    where x.log = s.log and x.stop > s.start + greatest(0, %(start)s - s."offset")
      and x.start < least(s.stop, s.start + %(stop)s - s."offset")
      and x.start >= coalesce(
          (select max(start) from extents where log = s.log and start <= s.start + greatest(0, %(start)s - s."offset")), 0)
    order by x.start limit %(limit)s
) e
left join blobs b on b.id = e.blob
where s.stream = %(stream)s and s.segment = %(segment)s and s."offset" < %(stop)s
  and s."offset" >= coalesce(
      (select max("offset") from spans where stream = %(stream)s and segment = %(segment)s and "offset" <= %(start)s), 0)
order by s."offset", e.start limit %(limit)s;

-- name: extent_before
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from extents e left join blobs b on b.id = e.blob
where e.log = %s and e.start < %s order by e.start desc limit 1;

-- name: extents_of_blob
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e."at", e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.size_end, e.data
from extents e join blobs b on b.id = e.blob
where e.blob = %s order by e.log, e.start;

-- The extent at a position with the times that a search by halving needs.
-- name: times_at
select start, stop, appended_high, event_reach from extents where log = %s and start <= %s order by start desc limit 1;

-- name: first_extent_with_event
select start from extents where log = %s and start >= %s and event_high >= %s order by start limit 1;

-- name: progress
select next, fence, recent from writers where log = %s and writer = %s;

-- name: writers_of_log
select writer, next, fence, recent from writers where log = %s and writer > %s order by writer limit %s;

-- name: blobs_after
select id, key, size, encoding, begun_at, dead_at from blobs where id > %s order by id limit %s;

-- name: blob_keys
select key from blobs where key = any (%s);

-- name: oldest_blob
select begun_at from blobs where id = any (%s) order by begun_at limit 1;

-- name: blob_in_use
select exists (select 1 from extents where blob = %s);

-- name: meta
select value from meta where name = %s;

-- name: leases
select id, kind, holder, begun_at, expires_at from leases order by begun_at;

-- name: request
select operation, result from requests where id = %s;

-- name: changes
select sequence, stream, at, kind, detail from changes where sequence > %s order by sequence limit %s;

-- name: pieces
select kind, name, value from pieces where kind = %s order by name limit %s;

-- name: piece
select kind, name, value from pieces where kind = %s and name = %s;

-- Rows that refer to what is not there: the database checks only some references by itself.
-- name: broken_references
select 'extents', log, 'logs' from extents e where not exists (select 1 from logs g where g.id = e.log)
union all
select 'extents', log, 'blobs' from extents e
where blob is not null and not exists (select 1 from blobs b where b.id = e.blob)
union all
select 'writers', log, 'logs' from writers r where not exists (select 1 from logs g where g.id = r.log)
union all
select 'spans', log, 'logs' from spans s where not exists (select 1 from logs g where g.id = s.log)
limit 100;

-- name: invalid_indexes
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = current_schema()::regnamespace and not i.indisvalid;
