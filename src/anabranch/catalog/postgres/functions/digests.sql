-- Each row's digest: what `hash_record_extended` makes of its values (but `extents.data`, which has a checksum; and with the
-- key of an extent's blob), and on it, by exclusive or, its bigints. The database folds a bigint to half its bits before it
-- hashes it; so no change of a single value leaves the digest as it was, not even one that folds alike.
--
-- `sound` returns whether a row's digest is that of its values. All are simple enough for the planner to inline them: they
-- cost less than a microsecond.

create or replace function scopes_digest(name text, tags text, created_at bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2 collate "C", $3), 0) # $3
$$;

create or replace function sound(scopes) returns boolean language sql immutable parallel safe as $$
    select $1.digest = scopes_digest($1.name, $1.tags, $1.created_at)
$$;

create or replace function streams_digest(id bigint, scope text, name text, schema_version integer, tags text, created_at bigint, sealed boolean,
    version integer, epoch bigint, next_number bigint, segments bigint, spans bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2 collate "C", $3 collate "C", $4, $5 collate "C", $6, $7, $8, $9, $10, $11,
        $12), 0) # $1 # $6 # $9 # $10 # $11 # $12
$$;

create or replace function sound(streams) returns boolean language sql immutable parallel safe as $$
    select $1.digest = streams_digest($1.id, $1.scope, $1.name, $1.schema_version, $1.tags, $1.created_at, $1.sealed,
        $1.version, $1.epoch, $1.next_number, $1.segments, $1.spans)
$$;

create or replace function schemas_digest(stream bigint, version integer, columns bytea, key_column text, time_column text, raw boolean)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2, $3, $4 collate "C", $5 collate "C", $6), 0) # $1
$$;

create or replace function sound(schemas) returns boolean language sql immutable parallel safe as $$
    select $1.digest = schemas_digest($1.stream, $1.version, $1.columns, $1.key_column, $1.time_column, $1.raw)
$$;

create or replace function segments_digest(stream bigint, segment bigint, low text, high text, retired bigint, head bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2, $3 collate "C", $4 collate "C", $5, $6), 0) # $1 # $2 # coalesce($5, 0)
        # $6
$$;

create or replace function sound(segments) returns boolean language sql immutable parallel safe as $$
    select $1.digest = segments_digest($1.stream, $1.segment, $1.low, $1.high, $1.retired, $1.head)
$$;

create or replace function logs_digest(id bigint, stream bigint, length bigint, sealed boolean, fence bigint, low_water bigint, size bigint,
    appended_at bigint, event_high bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2, $3, $4, $5, $6, $7, $8, $9), 0) # $1 # $2 # $3 # $5 # $6 # $7 # $8
        # coalesce($9, 0)
$$;

create or replace function sound(logs) returns boolean language sql immutable parallel safe as $$
    select $1.digest = logs_digest($1.id, $1.stream, $1.length, $1.sealed, $1.fence, $1.low_water, $1.size,
        $1.appended_at, $1.event_high)
$$;

create or replace function spans_digest(stream bigint, segment bigint, "offset" bigint, log bigint, start bigint, stop bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2, $3, $4, $5, $6), 0) # $1 # $2 # $3 # $4 # $5 # coalesce($6, 0)
$$;

create or replace function sound(spans) returns boolean language sql immutable parallel safe as $$
    select $1.digest = spans_digest($1.stream, $1.segment, $1."offset", $1.log, $1.start, $1.stop)
$$;

create or replace function blobs_digest(key text, id bigint, size bigint, encoding text, begun_at bigint, dead_at bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2, $3, $4 collate "C", $5, $6), 0) # $2 # $3 # $5
        # coalesce($6, 0)
$$;

create or replace function sound(blobs) returns boolean language sql immutable parallel safe as $$
    select $1.digest = blobs_digest($1.key, $1.id, $1.size, $1.encoding, $1.begun_at, $1.dead_at)
$$;

create or replace function extents_digest(log bigint, start bigint, stop bigint, blob bigint, key text, encoding text, "at" bigint,
    length bigint, "row" bigint, schema integer, checksum bigint, appended_low bigint, appended_high bigint,
    event_low bigint, event_high bigint, event_reach bigint, size_end bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2, $3, $4, $5 collate "C", $6 collate "C", $7, $8, $9, $10, $11, $12, $13,
        $14, $15, $16, $17), 0) # $1 # $2 # $3 # coalesce($4, 0) # $7 # $8 # $9 # $11 # $12 # $13 # coalesce($14, 0)
        # coalesce($15, 0) # coalesce($16, 0) # $17
$$;

create or replace function sound(extents, text) returns boolean language sql immutable parallel safe as $$
    select $1.digest = extents_digest($1.log, $1.start, $1.stop, $1.blob, $2, $1.encoding, $1."at", $1.length, $1.row,
        $1.schema, $1.checksum, $1.appended_low, $1.appended_high, $1.event_low, $1.event_high, $1.event_reach,
        $1.size_end)
$$;

create or replace function writers_digest(log bigint, writer text, next bigint, fence bigint, recent bigint[], seen_at bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2 collate "C", $3, $4, $5, $6), 0) # $1 # $3 # $4 # $6
$$;

create or replace function producers_digest(stream bigint, producer text, epoch bigint, last bigint, answers bigint[], seen_at bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2 collate "C", $3, $4, $5, $6), 0) # $1 # $3 # $4 # $6
$$;

create or replace function sound(producers) returns boolean language sql immutable parallel safe as $$
    select $1.digest = producers_digest($1.stream, $1.producer, $1.epoch, $1.last, $1.answers, $1.seen_at)
$$;

create or replace function sound(writers) returns boolean language sql immutable parallel safe as $$
    select $1.digest = writers_digest($1.log, $1.writer, $1.next, $1.fence, $1.recent, $1.seen_at)
$$;

create or replace function requests_digest(id text, operation text, result text, at bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2 collate "C", $3 collate "C", $4), 0) # $4
$$;

create or replace function sound(requests) returns boolean language sql immutable parallel safe as $$
    select $1.digest = requests_digest($1.id, $1.operation, $1.result, $1.at)
$$;

create or replace function changes_digest(sequence bigint, stream bigint, at bigint, kind text, detail text)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1, $2, $3, $4 collate "C", $5 collate "C"), 0) # $1 # coalesce($2, 0) # $3
$$;

create or replace function sound(changes) returns boolean language sql immutable parallel safe as $$
    select $1.digest = changes_digest($1.sequence, $1.stream, $1.at, $1.kind, $1.detail)
$$;

create or replace function aliases_digest(name text, stream bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2), 0) # $2
$$;

create or replace function sound(aliases) returns boolean language sql immutable parallel safe as $$
    select $1.digest = aliases_digest($1.name, $1.stream)
$$;

create or replace function states_digest(kind text, key text, lookup text, value text)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2 collate "C", $3 collate "C", $4 collate "C"), 0)
$$;

create or replace function sound(states) returns boolean language sql immutable parallel safe as $$
    select $1.digest = states_digest($1.kind, $1.key, $1.lookup, $1.value)
$$;

create or replace function leases_digest(id text, kind text, holder text, begun_at bigint, expires_at bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2 collate "C", $3 collate "C", $4, $5), 0) # $4 # $5
$$;

create or replace function sound(leases) returns boolean language sql immutable parallel safe as $$
    select $1.digest = leases_digest($1.id, $1.kind, $1.holder, $1.begun_at, $1.expires_at)
$$;

create or replace function meta_digest(name text, value bigint)
returns bigint language sql immutable parallel safe as $$
    select hash_record_extended(row($1 collate "C", $2), 0) # $2
$$;

create or replace function sound(meta) returns boolean language sql immutable parallel safe as $$
    select $1.digest = meta_digest($1.name, $1.value)
$$;

-- Raises the error that the store's own code raises when it decodes such a row.
create or replace function refuse_damaged(name text, key text) returns void language plpgsql as $$
begin
    raise exception using errcode = 'data_corrupted',
        message = 'row (' || key || ') of the table ' || name || ' was damaged: its values do not match its digest';
end
$$;
