-- The commit function, version 2: appends units of parts to logs, as `anabranch.core.decide` says, its oracle in tests.
-- The number in the name increases when its parameters or meaning change, so that a process of an older release finds no
-- function instead of a wrong one.
--
-- First it locks: request ids, then the horizon (shared; the collector takes it alone), then the logs in ascending id, then
-- the producers of the units.
-- Then, in a separate statement and so with a snapshot taken under the locks, it reads logs and writers for all parts at
-- once; decides part by part in memory, each after those before it; and writes the accepted parts with one statement a
-- table. A lone part is decided the same way with plain statements, which cost less.
-- Every row that it decides by is compared with its digest first, and every row that it writes gets one (`digests.sql`):
-- for a damaged row it fails with data_corrupted, and nothing is done, instead of writing the row with a valid digest.
-- It must be VOLATILE and run under READ COMMITTED: otherwise the second statement would see writers as they were
-- before the wait.
--
-- Parts come as arrays of one length, in order; unit u ends with part unit_ends[u]. `data` is null where no part is
-- inlined. `blob_of` is the part's place in the blob arrays. Where it waits longer than `patience` for one of several
-- locks, it fails with lock_not_available and nothing is done: a transaction that locks logs in another order would
-- otherwise wait for it forever, and the commit can simply be called again.
--
-- `producers_` is null where no unit has a producer. Else it has the name for each unit, or null; `producer_numbers` the
-- stream, the epoch, the first and the last number of each unit, and `places` the segment and the shift of each part.
--
-- For each part it returns a verdict ('appended', 'duplicate', or why it was refused), its number (start, or what
-- decided) and the append time.
create or replace function append_2(
    now bigint, patience text, unit_ends integer[], request_ids text[],
    logs_ bigint[], counts bigint[], schemas_ integer[], ats bigint[], lengths bigint[], rows_ bigint[],
    checksums bigint[], sizes bigint[], lows bigint[], highs bigint[],
    writers_ text[], firsts bigint[], carried bigint[], expected bigint[], fences bigint[],
    blob_of integer[], data bytea[],
    blob_keys text[], blob_sizes bigint[], blob_begun bigint[], blob_encodings text[],
    producers_ text[], producer_numbers bigint[], places bigint[],
    out verdicts text[], out numbers bigint[], out times bigint[]
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    parts constant integer := cardinality(logs_);
    kept constant integer := 16;           -- limits.WRITER_BATCHES_KEPT
    answers_kept constant integer := 16;   -- limits.PRODUCER_ANSWERS_KEPT
    horizon bigint := 0;
    -- For each part: the index of the first part with its log, and of the first with its log and writer. The arrays of
    -- states below are filled at these indexes.
    log_at integer[];
    writer_at integer[];
    log_known boolean[];
    log_length bigint[];
    log_sealed boolean[];
    log_fence bigint[];
    log_size bigint[];
    log_time bigint[];
    log_high bigint[];
    writer_next bigint[];                  -- null: the log has no progress of the writer
    writer_fence bigint[];
    writer_new integer[] := array_fill(0, array[parts]);   -- batches accepted in this call
    -- The values that a refused unit restores, and the running values of extents.
    old_time bigint[] := array_fill(0::bigint, array[parts]);
    old_high bigint[] := array_fill(0::bigint, array[parts]);
    old_next bigint[] := array_fill(0::bigint, array[parts]);
    old_fence bigint[] := array_fill(0::bigint, array[parts]);
    size_ends bigint[] := array_fill(0::bigint, array[parts]);
    reaches bigint[] := array_fill(0::bigint, array[parts]);
    blob_ids bigint[];
    first_part integer := 1;
    known requests;
    mark meta;                             -- the horizon
    damaged text[];                        -- table and key of a row
    hit record;
    g record;                              -- a lone part's log and writer
    r writers;
    d producers;                           -- a unit's producer
    blob_id bigint;
    refused boolean;
    producer_changed boolean := false;     -- `d` is to be written
    sequence_verdict text;
    sequence_number bigint;
    accepted integer := 0;
    l integer;
    w integer;
begin
    verdicts := array_fill(''::text, array[parts]);
    numbers := array_fill(0::bigint, array[parts]);
    times := array_fill(0::bigint, array[parts]);

    if parts > 1 and patience is not null then
        perform set_config('lock_timeout', patience, true);
    end if;
    if request_ids is not null then
        perform pg_advisory_xact_lock(lock_key('request ' || id))
        from (select id from unnest(request_ids) as id where id is not null order by id) as asked;
    end if;
    if blob_keys is not null then
        perform pg_advisory_xact_lock_shared(lock_key('horizon'));
    end if;

    if parts = 1 and request_ids is null then
        -- A lone part, the usual case of a durable event, is decided and written without set operations.
        select * into g from logs where id = logs_[1] for update;  -- the row, read under its lock
        if producers_ is not null then
            select * into d from producers where stream = producer_numbers[1] and producer = producers_[1] for update;
            if found and d.digest <> producers_digest(d.stream, d.producer, d.epoch, d.last, d.answers, d.seen_at) then
                perform refuse_damaged('producers', d.stream || ', ' || d.producer);
            end if;
            if d.stream is null or d.epoch <> producer_numbers[2] or d.last + 1 <> producer_numbers[3] then
                select t.verdict, t.number into sequence_verdict, sequence_number
                from decide_sequence(d, producer_numbers[2], producer_numbers[3], producer_numbers[4]) as t;
                verdicts[1] := sequence_verdict;
                numbers[1] := sequence_number;
                return;
            end if;
        end if;
        if g.id is null then
            verdicts[1] := 'gone';
            return;
        end if;
        if g.digest <> logs_digest(g.id, g.stream, g.length, g.sealed, g.fence, g.low_water, g.size, g.appended_at,
                                   g.event_high) then
            perform refuse_damaged('logs', g.id::text);
        end if;
        if blob_keys is not null then
            select * into mark from meta where name = 'horizon';
            if found and mark.digest is distinct from meta_digest(mark.name, mark.value) then
                perform refuse_damaged('meta', mark.name);
            end if;
            horizon := coalesce(mark.value, 0);
        end if;
        if writers_[1] is not null then
            select * into r from writers where log = logs_[1] and writer = writers_[1];
            if found and r.digest <> writers_digest(r.log, r.writer, r.next, r.fence, r.recent, r.seen_at) then
                perform refuse_damaged('writers', r.log || ', ' || r.writer);
            end if;
        end if;
        if firsts[1] < r.next then
            for i in 1 .. cardinality(r.recent) / 5 loop
                if r.recent[i * 5 - 4] = firsts[1] and r.recent[i * 5 - 3] = counts[1] and r.recent[i * 5] = carried[1] then
                    verdicts[1] := 'duplicate';
                    numbers[1] := r.recent[i * 5 - 2];
                    times[1] := r.recent[i * 5 - 1];
                    return;
                end if;
            end loop;
        end if;
        if carried[1] < r.fence then
            verdicts[1] := 'fenced';
            numbers[1] := r.fence;
        elsif fences[1] < g.fence then
            verdicts[1] := 'fenced';
            numbers[1] := g.fence;
        elsif blob_begun[blob_of[1]] < horizon then
            verdicts[1] := 'expired';
            numbers[1] := horizon;
        elsif g.sealed then
            verdicts[1] := 'sealed';
            numbers[1] := g.length;
        elsif writers_[1] is not null and firsts[1] <> coalesce(r.next, 0) then
            verdicts[1] := case when firsts[1] > r.next then 'gap' else 'unknown_writer' end;
            numbers[1] := coalesce(r.next, 0);
        elsif expected[1] <> g.length then
            verdicts[1] := 'condition';
            numbers[1] := g.length;
        else
            verdicts[1] := 'appended';
            numbers[1] := g.length;
            times[1] := greatest(now, g.appended_at);
            g.event_high := greatest(g.event_high, highs[1]);
            g.size := g.size + sizes[1];
            if blob_of[1] is not null then
                insert into blobs as b (id, key, size, encoding, begun_at, digest)
                select v.id, v.key, v.size, v.encoding, v.begun, blobs_digest(v.key, v.id, v.size, v.encoding, v.begun, null)
                from (select nextval('blobs_id_seq') as id, blob_keys[blob_of[1]] as key, blob_sizes[blob_of[1]] as size,
                             blob_encodings[blob_of[1]] as encoding, blob_begun[blob_of[1]] as begun offset 0) as v
                on conflict (key) do update
                set size = excluded.size, digest = blobs_digest(b.key, b.id, excluded.size, b.encoding, b.begun_at, b.dead_at)
                returning b.id into blob_id;
            end if;
            insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low,
                                 appended_high, event_low, event_high, event_reach, size_end, data, digest)
            values (g.id, g.length, g.length + counts[1], blob_id, 'arrow', ats[1], lengths[1], rows_[1], schemas_[1],
                    checksums[1], times[1], times[1], lows[1], highs[1], g.event_high, g.size, data[1],
                    extents_digest(g.id, g.length, g.length + counts[1], blob_id, blob_keys[blob_of[1]], 'arrow', ats[1],
                                   lengths[1], rows_[1], schemas_[1], checksums[1], times[1], times[1], lows[1], highs[1],
                                   g.event_high, g.size));
            update logs
            set length = g.length + counts[1], size = g.size, appended_at = times[1], event_high = g.event_high,
                digest = logs_digest(g.id, g.stream, g.length + counts[1], g.sealed, g.fence, g.low_water, g.size, times[1],
                                     g.event_high)
            where id = g.id;
            if r.next is not null then
                r.next := firsts[1] + counts[1];
                r.fence := greatest(r.fence, carried[1]);
                r.recent := (r.recent || array[firsts[1], counts[1], numbers[1], times[1], carried[1]])
                            [greatest(cardinality(r.recent) + 5 - 5 * kept + 1, 1):];
                update writers
                set next = r.next, fence = r.fence, recent = r.recent, seen_at = now,
                    digest = writers_digest(r.log, r.writer, r.next, r.fence, r.recent, now)
                where log = r.log and writer = r.writer;
            elsif writers_[1] is not null then
                insert into writers (log, writer, next, fence, recent, seen_at, digest)
                select v.log, v.writer, v.next, v.fence, v.recent, now,
                       writers_digest(v.log, v.writer, v.next, v.fence, v.recent, now)
                from (select g.id as log, writers_[1] as writer, firsts[1] + counts[1] as next, carried[1] as fence,
                             array[firsts[1], counts[1], numbers[1], times[1], carried[1]] as recent offset 0) as v;
            end if;
            if producers_ is not null then
                d.answers := followed_by(d.answers, array[
                    producer_numbers[2], producer_numbers[3], producer_numbers[4], 1,
                    places[1], numbers[1] + places[2], counts[1], times[1]], answers_kept);
                update producers
                set last = producer_numbers[4], answers = d.answers, seen_at = now,
                    digest = producers_digest(d.stream, d.producer, d.epoch, producer_numbers[4], d.answers, now)
                where stream = d.stream and producer = d.producer;
            end if;
        end if;
        return;
    end if;
    perform 1 from logs where id = any (logs_) order by id for update;
    if producers_ is not null then
        perform 1 from producers as d
        where (d.stream, d.producer) in (
            select producer_numbers[n * 4 - 3], producers_[n] from generate_subscripts(producers_, 1) as n
        )
        order by d.stream, d.producer for update;
    end if;

    -- Behind the locks.
    if blob_keys is not null then
        select * into mark from meta where name = 'horizon';
        if found and mark.digest is distinct from meta_digest(mark.name, mark.value) then
            perform refuse_damaged('meta', mark.name);
        end if;
        horizon := coalesce(mark.value, 0);
    end if;
    select array_agg(s.log_at), array_agg(s.writer_at), array_agg(s.known), array_agg(s.length), array_agg(s.sealed),
           array_agg(s.fence), array_agg(s.size), array_agg(s.appended_at), array_agg(s.event_high), array_agg(s.next),
           array_agg(s.writer_fence),
           min(case when not s.sound_log then array['logs', s.log::text]
                    when not s.sound_writer then array['writers', s.log || ', ' || s.writer] end)
    into log_at, writer_at, log_known, log_length, log_sealed, log_fence, log_size, log_time, log_high,
         writer_next, writer_fence, damaged
    from (
        select a.log_at, a.writer_at, g.id is not null as known, g.length, g.sealed, g.fence, g.size, g.appended_at,
               g.event_high, r.next, r.fence as writer_fence, a.log, a.writer, sound(g) as sound_log, sound(r) as sound_writer
        from (
            select t.n, t.log, t.writer,
                   (min(t.n) over (partition by t.log))::integer as log_at,
                   (min(t.n) over (partition by t.log, t.writer))::integer as writer_at
            from unnest(logs_, writers_) with ordinality as t (log, writer, n)
        ) as a
        left join logs as g on g.id = a.log
        left join writers as r on r.log = a.log and r.writer = a.writer
        order by a.n
    ) as s;
    if damaged is not null then
        perform refuse_damaged(damaged[1], damaged[2]);
    end if;

    for u in 1 .. cardinality(unit_ends) loop
        if request_ids is not null and request_ids[u] is not null then
            select * into known from requests where id = request_ids[u];
            if found and not sound(known) then
                perform refuse_damaged('requests', known.id);
            end if;
            if found then
                for p in first_part .. unit_ends[u] loop
                    verdicts[p] := 'duplicate';
                    numbers[p] := coalesce((known.result::json -> (p - first_part) ->> 0)::bigint, 0);
                    times[p] := coalesce((known.result::json -> (p - first_part) ->> 1)::bigint, 0);
                end loop;
                first_part := unit_ends[u] + 1;
                continue;
            end if;
        end if;

        if producers_ is not null and producers_[u] is not null then
            -- As the units before it have left it. Most units of a call have the same producer, which is written once.
            if d.stream is distinct from producer_numbers[u * 4 - 3] or d.producer is distinct from producers_[u] then
                if producer_changed then
                    perform put_producer(d);
                    producer_changed := false;
                end if;
                select * into d from producers where stream = producer_numbers[u * 4 - 3] and producer = producers_[u];
                if found and not sound(d) then
                    perform refuse_damaged('producers', d.stream || ', ' || d.producer);
                end if;
            end if;
            select t.verdict, t.number into sequence_verdict, sequence_number
            from decide_sequence(d, producer_numbers[u * 4 - 2], producer_numbers[u * 4 - 1], producer_numbers[u * 4]) as t;
            if sequence_verdict is not null then
                for p in first_part .. unit_ends[u] loop
                    verdicts[p] := sequence_verdict;
                    numbers[p] := sequence_number;
                end loop;
                first_part := unit_ends[u] + 1;
                continue;
            end if;
        end if;

        refused := false;
        for p in first_part .. unit_ends[u] loop
            l := log_at[p];
            w := case when writers_[p] is null then null else writer_at[p] end;
            if not log_known[p] then
                verdicts[p] := 'gone';
                refused := true;
                continue;
            end if;
            if w is not null and firsts[p] < writer_next[w] then
                -- Perhaps it landed before: among the batches of this call, then among those kept, the newest of both.
                select b.start, b.time into hit
                from (
                    select q.n::bigint - parts as age, numbers[q.n] as start, times[q.n] as time,
                           firsts[q.n] as first, counts[q.n] as count, carried[q.n] as fence
                    from generate_series(1, p - 1) as q (n)
                    where writer_new[w] > 0 and verdicts[q.n] = 'appended' and writer_at[q.n] = w
                    union all
                    select q.n - 1000000, r.recent[q.n * 5 - 2], r.recent[q.n * 5 - 1],
                           r.recent[q.n * 5 - 4], r.recent[q.n * 5 - 3], r.recent[q.n * 5]
                    from writers as r, generate_series(1, cardinality(r.recent) / 5) as q (n)
                    where r.log = logs_[p] and r.writer = writers_[p]
                    order by 1 desc
                    limit kept
                ) as b
                where b.first = firsts[p] and b.count = counts[p] and b.fence = carried[p]
                order by b.age
                limit 1;
                if found then
                    verdicts[p] := 'duplicate';
                    numbers[p] := hit.start;
                    times[p] := hit.time;
                    continue;
                end if;
            end if;

            if w is not null and carried[p] < writer_fence[w] then
                verdicts[p] := 'fenced';
                numbers[p] := writer_fence[w];
            elsif fences[p] < log_fence[l] then
                verdicts[p] := 'fenced';
                numbers[p] := log_fence[l];
            elsif blob_of[p] is not null and blob_begun[blob_of[p]] < horizon then
                verdicts[p] := 'expired';
                numbers[p] := horizon;
            elsif log_sealed[l] then
                verdicts[p] := 'sealed';
                numbers[p] := log_length[l];
            elsif w is not null and firsts[p] <> coalesce(writer_next[w], 0) then
                -- Below the next number and not among the kept batches: its answer is forgotten, not refused.
                verdicts[p] := case when firsts[p] > writer_next[w] then 'gap' else 'unknown_writer' end;
                numbers[p] := coalesce(writer_next[w], 0);
            elsif expected[p] <> log_length[l] then
                verdicts[p] := 'condition';
                numbers[p] := log_length[l];
            else
                verdicts[p] := 'appended';
                numbers[p] := log_length[l];
                times[p] := greatest(now, log_time[l]);
                old_time[p] := log_time[l];
                old_high[p] := log_high[l];
                log_length[l] := log_length[l] + counts[p];
                log_size[l] := log_size[l] + sizes[p];
                log_time[l] := times[p];
                log_high[l] := greatest(log_high[l], highs[p]);
                size_ends[p] := log_size[l];
                reaches[p] := log_high[l];
                if w is not null then
                    old_next[p] := writer_next[w];
                    old_fence[p] := writer_fence[w];
                    writer_next[w] := firsts[p] + counts[p];
                    writer_fence[w] := greatest(writer_fence[w], carried[p]);
                    writer_new[w] := writer_new[w] + 1;
                end if;
                accepted := accepted + 1;
                continue;
            end if;
            refused := true;
        end loop;

        if refused then
            -- Duplicates were appended before and stay; the changes of this unit are undone, the latest first.
            for p in reverse unit_ends[u] .. first_part loop
                continue when verdicts[p] <> 'appended';
                l := log_at[p];
                log_length[l] := log_length[l] - counts[p];
                log_size[l] := log_size[l] - sizes[p];
                log_time[l] := old_time[p];
                log_high[l] := old_high[p];
                if writers_[p] is not null then
                    w := writer_at[p];
                    writer_next[w] := old_next[p];
                    writer_fence[w] := old_fence[p];
                    writer_new[w] := writer_new[w] - 1;
                end if;
                verdicts[p] := 'unit';
                numbers[p] := 0;
                times[p] := 0;
                accepted := accepted - 1;
            end loop;
        elsif request_ids is not null and request_ids[u] is not null then
            insert into requests (id, operation, result, at, digest)
            select v.id, 'append', v.result, now, requests_digest(v.id, 'append', v.result, now)
            from (
                select request_ids[u] as id,
                       coalesce(json_agg(json_build_array(numbers[q], times[q]) order by q)::text, '[]') as result
                from generate_series(first_part, unit_ends[u]) as q
            ) as v;
        elsif producers_ is not null and producers_[u] is not null then
            d.answers := followed_by(d.answers, array[
                    producer_numbers[u * 4 - 2], producer_numbers[u * 4 - 1], producer_numbers[u * 4],
                    (unit_ends[u] - first_part + 1)::bigint
                ] || (
                    select array_agg(v order by q, i)
                    from generate_series(first_part, unit_ends[u]) as q,
                         unnest(array[places[q * 2 - 1], numbers[q] + places[q * 2], counts[q], times[q]])
                         with ordinality as run (v, i)
                ), answers_kept);
            d.last := producer_numbers[u * 4];
            d.seen_at := now;
            producer_changed := true;
        end if;
        first_part := unit_ends[u] + 1;
    end loop;
    if producer_changed then
        perform put_producer(d);
    end if;
    if accepted = 0 then
        return;
    end if;

    if blob_keys is not null then
        -- A blob is listed with its first accepted part: one whose parts were all refused stays an orphan to collect.
        -- One that is listed already, by an earlier unit or commit that used it, keeps its row.
        with used as (
            select distinct b.of from unnest(blob_of, verdicts) as b (of, verdict) where b.verdict = 'appended'
        ), entry as materialized (
            select nextval('blobs_id_seq') as id, blob_keys[u.of] as key, blob_sizes[u.of] as size,
                   blob_encodings[u.of] as encoding, blob_begun[u.of] as begun
            from (select used.of from used where used.of is not null order by used.of) as u
        ), listed as (
            insert into blobs as b (id, key, size, encoding, begun_at, digest)
            select v.id, v.key, v.size, v.encoding, v.begun, blobs_digest(v.key, v.id, v.size, v.encoding, v.begun, null)
            from entry as v order by v.id
            on conflict (key) do update
            set size = excluded.size, digest = blobs_digest(b.key, b.id, excluded.size, b.encoding, b.begun_at, b.dead_at)
            returning b.id, b.key
        )
        select array_agg(listed.id order by b.n) into blob_ids
        from unnest(blob_keys) with ordinality as b (key, n) left join listed on listed.key = b.key;
    end if;

    insert into extents (log, start, stop, blob, encoding, "at", length, row, schema, checksum, appended_low,
                         appended_high, event_low, event_high, event_reach, size_end, data, digest)
    select x.log, x.start, x.start + x.count, blob_ids[x.blob], 'arrow', x.position, x.length, x.first_row, x.schema,
           x.checksum, x.time, x.time, x.low, x.high, x.reach, x.size_end, data[x.n],
           extents_digest(x.log, x.start, x.start + x.count, blob_ids[x.blob], blob_keys[x.blob], 'arrow', x.position,
                          x.length, x.first_row, x.schema, x.checksum, x.time, x.time, x.low, x.high, x.reach, x.size_end)
    from unnest(logs_, numbers, counts, blob_of, ats, lengths, rows_, schemas_, checksums, times, lows, highs, reaches,
                size_ends, verdicts)
         with ordinality as x (log, start, count, blob, position, length, first_row, schema, checksum, time, low, high,
                               reach, size_end, verdict, n)
    where x.verdict = 'appended';

    update logs as g
    set length = x.length, size = x.size, appended_at = x.time, event_high = x.high,
        digest = logs_digest(g.id, g.stream, x.length, g.sealed, g.fence, g.low_water, x.size, x.time, x.high)
    from unnest(logs_, log_at, log_length, log_size, log_time, log_high)
         with ordinality as x (log, first, length, size, time, high, n)
    where g.id = x.log and x.first = x.n and g.length <> x.length;

    with fresh as materialized (
        select x.log, x.writer, writer_next[x.first] as next, writer_fence[x.first] as fence,
               array_agg(v order by x.n, i) as recent
        from unnest(logs_, writers_, writer_at, firsts, counts, numbers, times, carried, verdicts)
             with ordinality as x (log, writer, first, sequence, count, start, time, fence, verdict, n),
             unnest(array[x.sequence, x.count, x.start, x.time, x.fence]) with ordinality as batch (v, i)
        where x.verdict = 'appended' and x.writer is not null
        group by x.log, x.writer, x.first
    ), final as materialized (
        select f.log, f.writer, f.next, f.fence,
               (coalesce(r.recent, '{}') || f.recent)
               [greatest(coalesce(cardinality(r.recent), 0) + cardinality(f.recent) - 5 * kept + 1, 1):] as recent
        from fresh as f left join writers as r on r.log = f.log and r.writer = f.writer
    )
    insert into writers (log, writer, next, fence, recent, seen_at, digest)
    select f.log, f.writer, f.next, f.fence, f.recent, now, writers_digest(f.log, f.writer, f.next, f.fence, f.recent, now)
    from final as f
    on conflict (log, writer) do update
    set next = excluded.next, fence = excluded.fence, recent = excluded.recent, seen_at = excluded.seen_at,
        digest = excluded.digest;
end
$$;
