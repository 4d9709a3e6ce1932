"""Notifications: what happened is told, once, in order, and kept on a stream like any other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import StreamNotFound, StreamSealed, Truncated
from anabranch.notifications.publisher import NAME
from anabranch.store import Store
from tests.store.helpers import sound
from tests.waiting import until, until_ended

# what is told


def keep(store: Store) -> None:
    with store.ephemeral.create("s/b"):
        store.ephemeral.keep("s/b")


def take_back(store: Store) -> None:
    store.aliases.add("s/a", "s/other")
    store.aliases.remove("s/other")


class Told(NamedTuple):
    act: Callable[[Store], object]
    kind: str
    stream: str | None
    segments: int | None
    detail: dict[str, Any]


OPERATIONS = {
    "create": Told(lambda s: s.streams.create("s/b", scaling=3), "created", "s/b", 3, {"name": "s/b"}),
    "split": Told(
        lambda s: s.streams.scale("s/a", split="0.0", into=3),
        "scaled",
        "s/a",
        4,
        {"epoch": 1, "sealed": ["0.0"], "created": ["1.2", "1.3", "1.4"]},
    ),
    "merge": Told(
        lambda s: s.streams.scale("s/a", merge=["0.0", "0.1"]), "scaled", "s/a", 1, {"epoch": 1, "created": ["1.2"]}
    ),
    "scale by hand": Told(lambda s: s.streams.scale("s/a", 5), "scaled", "s/a", 5, {"sealed": ["0.0", "0.1"]}),
    "seal": Told(lambda s: s.streams.seal("s/a"), "sealed", "s/a", None, {"epoch": 0}),
    "truncate": Told(lambda s: s.streams.truncate("s/a", s.cuts.tail("s/a")), "truncated", "s/a", None, {"head": ...}),
    "delete": Told(lambda s: s.streams.delete("s/a"), "deleted", "s/a", None, {"name": "s/a"}),
    "rename": Told(lambda s: s.streams.rename("s/a", "s/z"), "renamed", "s/z", None, {"from": "s/a", "to": "s/z"}),
    "fence": Told(lambda s: s.streams.fence("s/a", 7), "fenced", "s/a", None, {"fence": 7}),
    "tag": Told(lambda s: s.streams.tag("s/a", {"x": "y"}), "tagged", "s/a", None, {"tags": {"x": "y"}}),
    "copy": Told(lambda s: s.streams.copy("s/a", "s/b"), "copied", "s/b", None, {"name": "s/b"}),
    "append": Told(lambda s: s.streams.append("s/a", "s/a"), "appended", "s/a", 2, {"epoch": ...}),
    "stitch": Told(
        lambda s: s.streams.stitch(["s/a"], into="s/b", keep_sources=True), "stitched", "s/b", None, {"kept": True}
    ),
    "replace": Told(
        lambda s: s.streams.replace("s/a", between=(0, 1), with_=None, by="append"),
        "replaced",
        "s/a",
        2,
        {"removed": 0, "added": 0},
    ),
    "alias": Told(lambda s: s.aliases.add("s/a", "s/other"), "alias added", "s/a", None, {"alias": "s/other"}),
    "retention": Told(
        lambda s: s.policies.retention("s/a", ab.RetainFor("7d")),
        "retention",
        "s/a",
        None,
        {"age_us": 7 * 86400 * 10**6},
    ),
    "load": Told(
        lambda s: s.policies.load("s/a", ab.RejectAbove(ab.Rate(100))), "load", "s/a", None, {"above": "reject"}
    ),
    "scaling": Told(lambda s: s.policies.scaling("s/a", ab.ByEventRate(100)), "scaling", "s/a", None, {"target": 100}),
    "take an alias back": Told(
        lambda s: take_back(s),
        "alias removed",
        "s/a",
        None,
        {"alias": "s/other"},
    ),
    "keep": Told(lambda s: keep(s), "kept", "s/b", None, {"name": "s/b"}),
    "create scope": Told(lambda s: s.scopes.create("t"), "scope created", None, None, {"scope": "t"}),
    "move scope": Told(lambda s: s.scopes.rename("s", "t"), "scope renamed", None, None, {"from": "s", "to": "t"}),
    "delete scope": Told(lambda s: s.scopes.delete("s", recursive=True), "scope deleted", None, None, {"scope": "s"}),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_notified_with_its_details(store: Store, operation: str) -> None:
    before = list(store.notifications.read())
    told = OPERATIONS[operation]
    told.act(store)
    (found,) = [each for each in store.notifications.read(after=before[-1].id) if each.kind == told.kind]
    assert (found.stream, found.segments, found.group) == (told.stream, told.segments, None)
    for name, value in told.detail.items():
        assert name in found.detail
        assert value is ... or found.detail[name] == value, name


def test_a_changed_check_is_notified(store: Store) -> None:
    store.streams.create("s/checked", schema=pa.schema([("a", pa.int64())]))
    store.streams.add_check("s/checked", "positive", "a > 0")
    last = list(store.notifications.read("s/checked"))[-1]
    assert (last.kind, last.detail) == ("checks", {"checks": {"positive": "a > 0"}})


def test_evolving_a_stream_is_notified(store: Store) -> None:
    columns = pa.schema([("a", pa.int64())])
    store.streams.create("s/typed", schema=columns)
    store.streams.evolve("s/typed", columns.append(pa.field("b", pa.string())))
    last = list(store.notifications.read("s/typed"))[-1]
    assert (last.kind, list(last.detail["columns"])) == ("evolved", ["b"])


def test_changes_before_the_first_request_are_notified_too(anywhere: Store) -> None:
    anywhere.streams.scale("s/a", 3)
    kinds = [(each.kind, each.segments) for each in anywhere.notifications.read("s/a")]
    assert kinds == [("created", 2), ("scaled", 3)]


def test_changes_are_notified_with_the_names_of_streams_that_were_deleted_many_changes_later(anywhere: Store) -> None:
    count = limits.NOTIFICATION_PAGE
    own = [f"s/x{number}" for number in range(count)]
    unnamed = [anywhere.ephemeral.create() for _ in range(3)]
    for name in own:
        anywhere.streams.create(name)
    for held in unnamed:
        held.leave()
    for name in own:
        anywhere.streams.delete(name)
    found = [(each.kind, each.stream) for each in anywhere.notifications.read() if "scope" not in each.kind]
    assert found[1:] == [*(("created", name) for name in own), *(("deleted", name) for name in own)]


def test_ids_increase_and_reads_can_be_repeated(anywhere: Store) -> None:
    for segments in (3, 1, 4):
        anywhere.streams.scale("s/a", segments)
        list(anywhere.notifications.read())
    ids = [each.id for each in anywhere.notifications.read()]
    assert ids == sorted(set(ids))
    assert [each.segments for each in anywhere.notifications.read("s/a")] == [2, 3, 1, 4]
    assert sound(anywhere)


def test_reading_continues_after_an_id(store: Store) -> None:
    store.streams.scale("s/a", 3)
    first = next(iter(store.notifications.read("s/a")))
    assert [each.kind for each in store.notifications.read("s/a", after=first.id)] == ["scaled"]


def test_internal_streams_are_not_notified(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r"):
        pass
    store.shared.synchronizer("s/x", initial=1).compact()
    names = {each.stream for each in store.notifications.read()} - {None}
    assert names == {"s/a"}


def test_a_renamed_stream_is_followed_by_its_id(store: Store) -> None:
    told = store.notifications.read("s/a", follow=True)
    store.streams.rename("s/a", "s/b")
    store.streams.scale("s/b", 3)
    assert [told.next(60).kind for _ in range(3)] == ["created", "renamed", "scaled"]  # type: ignore[union-attr]


def test_an_unknown_stream_raises_stream_not_found(store: Store) -> None:
    with pytest.raises(StreamNotFound):
        store.notifications.read("s/nowhere")
    with pytest.raises(StreamNotFound):
        store.notifications.listen(print, "s/nowhere")


# the stream that they are kept on


def test_notifications_are_a_stream_like_any_other(store: Store) -> None:
    store.streams.scale("s/a", 3)
    store.notifications.read()
    with store.reader("_store/notifications", columns=["kind", "stream", "segments"]) as reader:
        rows = [event.body for event in reader]
    assert {"kind": "scaled", "stream": "s/a", "segments": 3} in rows
    assert str(NAME) not in [str(info.name) for info in store.streams.list()]


@pytest.mark.parametrize("way", ["reader", "history"])
def test_reading_the_stream_enables_notifications(store: Store, way: str) -> None:
    store.streams.scale("s/a", 3)
    if way == "reader":
        with store.reader(NAME) as reader:
            batches = list(reader.batches())
    else:
        batches = [batch for part in store.history(NAME).ranges() for batch in part.batches()]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert ("scaled", "s/a", 3) in [(row["kind"], row["stream"], row["segments"]) for row in rows]


def test_the_notification_stream_has_a_retention_policy(store: Store) -> None:
    store.notifications.read()
    policy = store.policies.retention(NAME)
    assert policy is not None
    assert policy.age_us == limits.NOTIFICATIONS_KEPT_US


def test_a_reader_behind_the_retention_gets_truncated(store: Store) -> None:
    told = store.notifications.read(start=ab.HEAD)
    store.streams.truncate(NAME, store.cuts.tail(NAME))
    with pytest.raises(Truncated):
        list(told)


def test_a_collection_loses_no_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    list(store.notifications.read())
    store.streams.scale("s/a", 3)
    monkeypatch.setattr(limits, "CHANGES_KEPT_US", -60_000_000)  # the outbox forgets at once
    store.collect()
    with store.catalog.reading() as reading:
        assert reading.changes(0, 10) == []
    store.streams.scale("s/a", 4)
    assert [each.segments for each in store.notifications.read("s/a")] == [2, 3, 4]


def test_a_deleted_notification_stream_is_created_again(store: Store) -> None:
    told: list[ab.Notification] = []
    list(store.notifications.read())
    store.streams.delete(NAME)
    store.streams.scale("s/a", 3)
    store.notifications.listen(told.append, "s/a")
    store.streams.scale("s/a", 4)
    until(lambda: len(told) == 2)
    assert [(each.kind, each.segments) for each in told] == [("present", 3), ("scaled", 4)]


def test_a_sealed_notification_stream_raises_stream_sealed(store: Store) -> None:
    list(store.notifications.read())
    store.streams.seal(NAME)
    store.streams.scale("s/a", 3)
    with pytest.raises(StreamSealed):
        store.notifications.read()


def test_concurrent_publishers_publish_each_change_once(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as one, ab.connect(tmp_path / "store", create=True) as other:
        one.scopes.create("s")
        one.streams.create("s/a", scaling=2)
        done = threading.Event()

        def note(store: Store) -> None:
            while not done.is_set():
                store.notifications._publisher.advance()

        threads = [threading.Thread(target=note, args=(store,)) for store in (one, other, other)]
        for thread in threads:
            thread.start()
        for number in range(60):
            one.streams.tag("s/a", {"n": str(number)})
        done.set()
        until_ended(*threads)
        numbers = [each.detail["tags"]["n"] for each in one.notifications.read("s/a") if each.kind == "tagged"]
        assert numbers == [str(number) for number in range(60)]
        assert sound(one)
