"""Two broker processes over one store: one is killed, and the client goes on at the other."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

import anabranch as ab
from tests.server.kit import NO_GRPC, BrokerProcess
from tests.waiting import PATIENCE_S

EVENTS = 6_000


@pytest.mark.process
def test_kill_9_in_mid_append_and_mid_read_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with (
        BrokerProcess(tmp_path / "store", *NO_GRPC, folder=tmp_path / "one") as one,
        BrokerProcess(tmp_path / "store", *NO_GRPC, folder=tmp_path / "two") as two,
    ):
        places = [each.addresses["flight"].removeprefix("anabranch://") for each in (one, two)]
        with ab.connect("anabranch://" + ",".join(places)) as store:
            read: list[bytes] = []
            reader = store.reader("s/a", follow=True)

            def follow() -> None:
                for event in reader:
                    read.append(event.body)
                    if len(read) == EVENTS:
                        return

            follower = threading.Thread(target=follow, daemon=True)
            follower.start()
            with store.writer("s/a") as writer:
                acks = []
                for i in range(EVENTS):
                    acks.append(writer.write(b"%d" % i, key=f"k{i % 10}"))
                    if i == EVENTS // 3:
                        acks[i // 2].result(PATIENCE_S)
                        one.kill()  # with batches on their way and answers outstanding
                writer.flush()
                places_of = [ack.result(PATIENCE_S) for ack in acks]
            follower.join(PATIENCE_S)
            reader.close()
    with ab.connect(tmp_path / "store") as store, store.reader("s/a") as stored:
        events = list(stored)
        by_key: dict[str, list[int]] = {}
        for event in events:
            by_key.setdefault(event.key, []).append(int(event.body))
        assert all(found == sorted(found) for found in by_key.values())
        assert Counter(event.body for event in events) == Counter(b"%d" % i for i in range(EVENTS))
        assert {event.pointer: event.body for event in events} == {
            pointer: b"%d" % i for i, pointer in enumerate(places_of)
        }
    assert Counter(read) == Counter(b"%d" % i for i in range(EVENTS))
