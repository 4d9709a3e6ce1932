-- Statements that only read.

-- name: scopes
select name, tags, created_at, digest
from scopes order by name;

-- name: scope
select name, tags, created_at, digest
from scopes where name = ?;

-- name: streams
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, s.digest, c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, c.digest
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where (:scope is null or s.scope = :scope) and (s.scope, s.name) > (:after_scope, :after_name)
order by s.scope, s.name limit :limit;

-- name: stream_by_name
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, s.digest, c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, c.digest
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.scope = ? and s.name = ?;

-- The alias first, then its stream.
-- name: stream_by_alias
select a.name, a.stream, a.digest, s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version,
       s.epoch, s.next_number, s.segments, s.spans, s.digest, c.stream, c.version, c.columns, c.key_column, c.time_column,
       c.raw, c.digest
from aliases a
left join streams s on s.id = a.stream
left join schemas c on c.stream = s.id and c.version = s.schema_version
where a.name = ?;

-- Damaged rows are returned too: reading one raises an error.
-- name: aliases
select a.name, a.stream, a.digest, s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version,
       s.epoch, s.next_number, s.segments, s.spans, s.digest
from aliases a
left join streams s on s.id = a.stream
where a.name > :after and a.name < :below and (s.id is not null or a.digest <> row_digest(a.name, a.stream))
order by a.name limit :limit;

-- name: aliases_of
select name, stream, digest
from aliases where stream = ? order by name;

-- name: stream_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, s.digest, c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, c.digest
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id = ?;

-- name: streams_by_id
select s.id, s.scope, s.name, s.schema_version, s.tags, s.created_at, s.sealed, s.version, s.epoch, s.next_number,
       s.segments, s.spans, s.digest, c.stream, c.version, c.columns, c.key_column, c.time_column, c.raw, c.digest
from streams s left join schemas c on c.stream = s.id and c.version = s.schema_version
where s.id in (select value from json_each(?));

-- name: segments_of_streams
select stream, segment, low, high, retired, head, digest
from segments where stream in (select value from json_each(?)) order by stream, segment;

-- name: spans_of_streams
select stream, segment, "offset", log, start, stop, digest
from spans where stream in (select value from json_each(?))
order by stream, segment, "offset";

-- name: fragmented
select stream, segment from spans group by stream, segment having count(*) >= ?
order by count(*) desc, stream, segment limit ?;

-- name: logs_of_streams
select distinct v.stream, l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at,
       l.event_high, l.digest
from spans v join logs l on l.id = v.log where v.stream in (select value from json_each(?)) order by v.stream, l.id;

-- name: schema
select stream, version, columns, key_column, time_column, raw, digest
from schemas where stream = ? and version = ?;

-- name: segments
select stream, segment, low, high, retired, head, digest
from segments where stream = ? order by segment;

-- name: spans
select stream, segment, "offset", log, start, stop, digest
from spans where stream = ? order by segment, "offset";

-- name: spans_of_log
select stream, segment, "offset", log, start, stop, digest
from spans where log = ? order by start, stream, segment;

-- name: logs_of_stream
select l.id, l.stream, l.length, l.sealed, l.fence, l.low_water, l.size, l.appended_at, l.event_high, l.digest
from logs l where l.id in (select log from spans where stream = ?);

-- name: log
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest
from logs where id = ?;

-- name: logs
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest
from logs where id in (select value from json_each(?));

-- name: stream_ids_after
select id from streams where id > ? order by id limit ?;

-- name: logs_after
select id, stream, length, sealed, fence, low_water, size, appended_at, event_high, digest
from logs where id > ? order by id limit ?;

-- The first extent that can intersect is the last one that begins at or before the start.
-- name: extents
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, e.digest
from extents e left join blobs b on b.id = e.blob
where e.log = :log and e.stop > :start and e.start < :stop
  and e.start >= coalesce((select max(start) from extents where log = :log and start <= :start), 0)
order by e.start limit :limit;

-- Span by span and extent by extent in the order of both keys, so that nothing is sorted or read beyond the limit.
-- name: extents_of_segment
select s."offset", e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum,
       e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, e.digest
from spans s
cross join extents e
left join blobs b on b.id = e.blob
where s.stream = :stream and s.segment = :segment and s."offset" < :stop
  and s."offset" >= coalesce((select max("offset") from spans where stream = :stream and segment = :segment and "offset" <= :start), 0)
  and e.log = s.log and e.stop > s.start + max(0, :start - s."offset")
  and e.start < coalesce(min(s.stop, s.start + :stop - s."offset"), s.start + :stop - s."offset")
  and e.start >= coalesce((select max(start) from extents where log = s.log and start <= s.start + max(0, :start - s."offset")), 0)
order by s."offset", e.start limit :limit;

-- name: extent_before
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, e.digest
from extents e left join blobs b on b.id = e.blob
where e.log = ? and e.start < ? order by e.start desc limit 1;

-- name: extents_of_blob
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.data, e.digest
from extents e join blobs b on b.id = e.blob
where e.blob = ? order by e.log, e.start;

-- The extent at a position, with the times that a binary search needs.
-- name: times_at
select e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema, e.checksum, e.appended_low,
       e.appended_high, e.event_low, e.event_high, e.event_reach, e.size_end, e.digest
from extents e left join blobs b on b.id = e.blob
where e.log = ? and e.start <= ? order by e.start desc limit 1;

-- Damaged rows are returned too: reading one raises an error.
-- name: first_extent_with_event
select e.start from extents e left join blobs b on b.id = e.blob
where e.log = ? and e.start >= ?
  and (e.event_high >= ?
       or e.digest <> row_digest(e.log, e.start, e.stop, e.blob, b.key, e.encoding, e.at, e.length, e.row, e.schema,
                      e.checksum, e.appended_low, e.appended_high, e.event_low, e.event_high, e.event_reach,
                      e.size_end))
order by e.start limit 1;

-- name: progress
select log, writer, next, fence, recent, seen_at, digest
from writers where log = ? and writer = ?;

-- name: progress_in
select w.log, w.writer, w.next, w.fence, w.recent, w.seen_at, w.digest
from json_each(?2) l join writers w on w.log = l.value and w.writer = ?1;

-- name: writers_of_log
select log, writer, next, fence, recent, seen_at, digest
from writers where log = ? and writer > ? order by writer limit ?;

-- name: producer
select stream, producer, epoch, last, answers, seen_at, digest
from producers where stream = ? and producer = ?;

-- name: producers_of_stream
select stream, producer, epoch, last, answers, seen_at, digest
from producers where stream = ? and producer > ? order by producer limit ?;

-- name: count_producers
select count(*) from producers where stream = ?;

-- name: blobs_after
select key, id, size, encoding, begun_at, dead_at, digest
from blobs where id > ? order by id limit ?;

-- name: blob_keys
select key from blobs where key in (select value from json_each(?));

-- name: blobs
select key, id, size, encoding, begun_at, dead_at, digest
from blobs where id in (select value from json_each(?)) order by begun_at;

-- name: blob_in_use
select exists (select 1 from extents where blob = ?);

-- name: meta
select name, value, digest
from meta where name = ?;

-- name: leases
select id, kind, holder, begun_at, expires_at, digest
from leases order by begun_at;

-- name: request
select id, operation, result, at, digest
from requests where id = ?;

-- name: changes
select sequence, stream, at, kind, detail, digest
from changes where sequence > ? order by sequence limit ?;

-- name: state
select kind, key, lookup, value, digest
from states where kind = ? and key = ?;

-- name: states
select kind, key, lookup, value, digest
from states where kind = ? order by key limit ?;

-- name: states_between
select kind, key, lookup, value, digest
from states where kind = ? and key >= ? and key < ? order by key limit ?;

-- name: states_among
select kind, key, lookup, value, digest
from states where kind = ? and key in (select value from json_each(?)) order by key;

-- Without the hint, SQLite reads all rows of the kind by the primary key, since those are in order.
-- name: states_found
select kind, key, lookup, value, digest
from states indexed by states_by_lookup where kind = ? and lookup = ? order by key limit ?;

-- name: states_found_between
select kind, key, lookup, value, digest
from states indexed by states_by_lookup where kind = ? and lookup >= ? and lookup < ? order by lookup, key limit ?;
