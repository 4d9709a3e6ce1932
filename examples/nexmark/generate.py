"""Writes the NEXMark events (persons, auctions, bids) into three streams of a store: the same for the same seed.

    python examples/nexmark/generate.py ./river --events 5000

Of every 50 events one is a person, three are auctions, and 46 are bids, as in NEXMark. Events are 20 ms apart and begin
one minute before midnight. They are appended up to 2 seconds out of order, which is less than a watermark's delay.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import anabranch as ab

START_US = int(datetime(2026, 1, 31, 23, 59, tzinfo=UTC).timestamp()) * 1_000_000
STEP_US = 20_000
DISORDER_US = 2_000_000
FIRST_ID = 1_000
COMMIT_EVENTS = 1_000

TIME = pa.timestamp("us", "UTC")
SCHEMAS = {
    "person": pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "email_address": pa.string(),
            "credit_card": pa.string(),
            "city": pa.string(),
            "state": pa.string(),
            "date_time": TIME,
            "extra": pa.string(),
        }
    ),
    "auction": pa.schema(
        {
            "id": pa.int64(),
            "item_name": pa.string(),
            "description": pa.string(),
            "initial_bid": pa.int64(),
            "reserve": pa.int64(),
            "date_time": TIME,
            "expires": TIME,
            "seller": pa.int64(),
            "category": pa.int64(),
            "extra": pa.string(),
        }
    ),
    "bid": pa.schema(
        {
            "auction": pa.int64(),
            "bidder": pa.int64(),
            "price": pa.int64(),
            "channel": pa.string(),
            "url": pa.string(),
            "date_time": TIME,
            "extra": pa.string(),
        }
    ),
}
KEYS = {"person": "id", "auction": "id", "bid": "auction"}
CITIES = (("Phoenix", "AZ"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR"), ("Seattle", "WA"))
NAMES = ("Ada", "Barbara", "Edsger", "Grace", "Leslie", "Tony")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def generate(store: ab.Store, *, events: int = 5_000, seed: int = 1) -> dict[str, int]:
    """Create the streams `nexmark/person`, `nexmark/auction`, `nexmark/bid` and the table `nexmark/side_input`, and
    append `events` events to the first three. Returns the number of events of each."""
    store.scopes.create("nexmark", exist_ok=True)
    for kind, schema in SCHEMAS.items():
        store.streams.create(f"nexmark/{kind}", schema=schema, key=KEYS[kind], time="date_time", scaling=2)
    _side_input(store)
    counts = dict.fromkeys(SCHEMAS, 0)
    waiting: dict[str, list[dict[str, Any]]] = {kind: [] for kind in SCHEMAS}
    writers = {kind: store.writer(f"nexmark/{kind}") for kind in SCHEMAS}
    try:
        for number, (kind, row) in enumerate(_disordered(_events(events, seed), seed), start=1):
            waiting[kind].append(row)
            counts[kind] += 1
            if number % COMMIT_EVENTS == 0 or number == events:
                for each, rows in waiting.items():
                    if rows:
                        writers[each].write_batch(pa.Table.from_pylist(rows, SCHEMAS[each]), atomic=True)
                        rows.clear()
    finally:
        for writer in writers.values():
            writer.close()
    return counts


def _side_input(store: ab.Store) -> None:
    """The bounded side input of query 13."""
    schema = pa.schema({"key": pa.int64(), "value": pa.string()})
    store.streams.create("nexmark/side_input", schema=schema, key="key")
    with store.writer("nexmark/side_input") as writer:
        writer.write_batch(
            pa.Table.from_pylist([{"key": each, "value": f"value {each}"} for each in range(100)], schema)
        )


def _disordered(events: Iterator[tuple[str, dict[str, Any]]], seed: int) -> list[tuple[str, dict[str, Any]]]:
    chance = random.Random(seed + 1)
    placed = [
        (row["date_time"] + chance.randrange(DISORDER_US), number, kind, row)
        for number, (kind, row) in enumerate(events)
    ]
    return [(kind, row) for _, _, kind, row in sorted(placed, key=lambda each: each[:2])]


def _events(count: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    chance = random.Random(seed)
    persons = auctions = 0
    for number in range(count):
        time, turn = START_US + number * STEP_US, number % 50
        extra = "".join(chance.choices("abc", k=chance.randrange(4, 12)))
        if turn == 0:
            row, persons = _person(chance, FIRST_ID + persons), persons + 1
            yield "person", {**row, "date_time": time, "extra": extra}
        elif turn <= 3:
            row, auctions = _auction(chance, FIRST_ID + auctions, _recent(chance, persons, 20)), auctions + 1
            expires = time + chance.randrange(2_000, 20_000) * 1_000
            yield "auction", {**row, "date_time": time, "expires": expires, "extra": extra}
        else:
            row = _bid(chance, _recent(chance, auctions, 60), _recent(chance, persons, 40))
            yield "bid", {**row, "date_time": time, "extra": extra}


def _recent(chance: random.Random, made: int, span: int) -> int:
    """The id of one of the `span` newest of `made` persons or auctions; the newest are chosen most often."""
    back = int(span * chance.random() ** 2)
    return FIRST_ID + max(made - 1 - back, 0)


def _person(chance: random.Random, ident: int) -> dict[str, Any]:
    name, (city, state) = chance.choice(NAMES), chance.choice(CITIES)
    card = " ".join(f"{chance.randrange(10_000):04}" for _ in range(4))
    email = f"{name.lower()}{ident}@example.org"
    return {"id": ident, "name": name, "email_address": email, "credit_card": card, "city": city, "state": state}


def _auction(chance: random.Random, ident: int, seller: int) -> dict[str, Any]:
    initial = chance.randrange(100, 10_000)
    return {
        "id": ident,
        "item_name": f"item {ident % 97}",
        "description": f"lot {chance.randrange(1_000_000)}",
        "initial_bid": initial,
        "reserve": initial + chance.randrange(10_000),
        "seller": seller,
        "category": chance.randrange(10, 15),
    }


def _bid(chance: random.Random, auction: int, bidder: int) -> dict[str, Any]:
    channel = chance.choice(CHANNELS) if chance.random() < 0.5 else f"channel-{chance.randrange(1_000)}"
    address = f"https://www.nexmark.example/{channel.lower()}/{auction % 7}/item.htm?query=1"
    return {
        "auction": auction,
        "bidder": bidder,
        "price": int(10 ** (2 + 6 * chance.random())),
        "channel": channel,
        "url": address if chance.random() < 0.5 else f"{address}&channel_id={chance.randrange(1_000)}",
    }


def main() -> None:
    """Generate into a store on disk."""
    parser = argparse.ArgumentParser(description="Write NEXMark events into a store.")
    parser.add_argument("store")
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ab.connect(given.store, create=True) as store:
        for kind, count in generate(store, events=given.events, seed=given.seed).items():
            print(f"nexmark/{kind}: {count:,} events")


if __name__ == "__main__":
    main()
