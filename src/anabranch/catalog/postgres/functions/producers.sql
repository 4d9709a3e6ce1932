-- Parts of the commit function for units with a producer, as `anabranch.core.producer` and `anabranch.model.producer` say.

-- Whether a unit is the producer's next one: the verdict is null, or why it is refused. `d` is null where the producer does
-- not exist.
create or replace function decide_sequence(d producers, epoch bigint, first bigint, last bigint, out verdict text, out number bigint)
language plpgsql immutable as $$
declare
    at integer := 2;                       -- behind the number of answers
begin
    if d.stream is null then
        verdict := 'unknown_writer';
        number := 0;
        return;
    end if;
    if epoch > d.epoch then
        verdict := 'unknown_writer';
        number := d.last + 1;
    elsif epoch < d.epoch then
        verdict := 'fenced';
        number := d.epoch;
        while at < cardinality(d.answers) loop
            if d.answers[at] = epoch and d.answers[at + 1] = first and d.answers[at + 2] = last then
                verdict := 'repeated';
                number := last;
                return;
            end if;
            at := at + 4 + 4 * d.answers[at + 3]::integer;
        end loop;
    elsif last <= d.last then
        verdict := 'repeated';
        number := d.last;
    elsif first <> d.last + 1 then
        verdict := 'gap';
        number := d.last + 1;
    end if;
end
$$;

-- The last `kept` of some packed answers and one more.
create or replace function followed_by(answers bigint[], answer bigint[], kept integer) returns bigint[]
language plpgsql immutable as $$
declare
    count bigint := coalesce(answers[1], 0);
    at integer := 2;
begin
    while count >= kept loop
        at := at + 4 + 4 * answers[at + 3]::integer;
        count := count - 1;
    end loop;
    return (count + 1) || answers[at:] || answer;
end
$$;

-- Write a producer that exists. Not in SQL, which would be planned again in every transaction.
create or replace function put_producer(d producers) returns void language plpgsql as $$
begin
    update producers as p
    set last = d.last, answers = d.answers, seen_at = d.seen_at,
        digest = producers_digest(d.stream, d.producer, d.epoch, d.last, d.answers, d.seen_at)
    where p.stream = d.stream and p.producer = d.producer;
end
$$;
