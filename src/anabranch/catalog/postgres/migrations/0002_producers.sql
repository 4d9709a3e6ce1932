-- Format 2: producers, named sequences of appends to a stream. The commit function has another name from now on, so that a
-- process of an older release finds none.

create table producers (
    stream bigint not null references streams (id),
    producer text collate "C" not null,
    epoch bigint not null,
    last bigint not null,                  -- number of the last append, -1: none yet
    answers bigint[] not null,             -- the last answers: anabranch.model.producer
    seen_at bigint not null,
    digest bigint not null,
    primary key (stream, producer)
) with (fillfactor = 50);

drop function if exists append_1;
