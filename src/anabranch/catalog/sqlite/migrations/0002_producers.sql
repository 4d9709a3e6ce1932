-- Format 2: producers, named sequences of appends to a stream.

create table producers (
    stream integer not null references streams (id),
    producer text not null,
    epoch integer not null,
    last integer not null,                 -- number of the last append, -1: none yet
    answers blob not null,                 -- the last answers, packed: anabranch.model.producer
    seen_at integer not null,
    digest integer not null,
    primary key (stream, producer)
) without rowid;
