"""Stores in processes that were forked while one was open: refused at once, whatever the parent is doing, and no harm to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.settings import Settings
from tests import s3_server
from tests.process.children import Child, Tell
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.process


def run(script: str, *arguments: object) -> None:
    """Run a script in an interpreter of its own, which forks; what a child says on its standard error counts."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


_USED_IN_A_CHILD = """
import gc, os, signal, sys, threading
import anabranch as ab
from anabranch.errors import Forked

place, blobs, patience = sys.argv[1], sys.argv[2], int(float(sys.argv[3]))
store = ab.connect(place, blobs=blobs, create=True)
store.scopes.create("s")
store.streams.create("s/a")
store.streams.create("s/b")
writer, reader, tail = store.writer("s/a"), store.reader("s/a"), store.reader("s/a", follow=True)
writer.write(b"first").result()
events, followed = iter(reader), iter(tail)
assert next(followed).body == b"first"
group = store.groups.open("s/g", streams=["s/a"])
member = group.reader("r")
transaction = store.transaction()
transaction.writer("s/b").write(b"in a transaction")
shared = store.shared.synchronizer("s/state", initial=0)
stop, written = threading.Event(), []

def keep_writing():
    with store.writer("s/b") as other:
        while not stop.is_set():
            written.append(other.write(b"x").result())
            list(store.streams.list())

def refused(act):
    try:
        act()
    except Forked:
        return True
    return False

def use():
    acts = [
        lambda: list(store.streams.list()), lambda: store.writer("s/a"), lambda: writer.write(b"x"), pending.result, writer.flush,
        writer.close, lambda: next(followed), lambda: next(events), tail.close, lambda: store.scopes.create("t"),
        lambda: member.read(timeout_s=1), member.close, group.unread, transaction.commit, transaction.abort,
        lambda: shared.update(lambda value: value + 1), store.collect, lambda: list(store.check()), store.jobs.list,
    ]
    allowed = [number for number, act in enumerate(acts) if not refused(act)]
    assert not allowed, allowed

threads = [threading.Thread(target=keep_writing, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(10):
    pending = writer.write(b"pending")
    child = os.fork()
    if child == 0:
        signal.alarm(patience)
        use()
        store.close()
        del store, writer, reader, tail, events, followed, group, member, transaction, shared, pending
        gc.collect()
        sys.exit(0)  # through the hooks of the exit, and past the end of all objects
    assert os.waitpid(child, 0)[1] == 0
    pending.result()
stop.set()
for thread in threads:
    thread.join()
transaction.commit()
writer.close()
assert shared.update(lambda value: value + 1) == 1
with store.reader("s/a") as everything:
    assert [event.body for event in everything] == [b"first"] + [b"pending"] * 10
with store.reader("s/b") as everything:
    assert sum(event.body == b"x" for event in everything) == len(written)
assert list(store.check()) == []
store.close()
"""


def test_a_store_is_refused_in_a_forked_child_and_goes_on_in_its_parent(place: str, tmp_path: Path) -> None:
    run(_USED_IN_A_CHILD, place, tmp_path / "blobs", PATIENCE_S)


_OPENED_IN_A_CHILD = """
import os, signal, sys
import anabranch as ab
from anabranch.errors import Forked

place, blobs, patience = sys.argv[1], sys.argv[2], int(float(sys.argv[3]))

def fork(work):
    child = os.fork()
    if child == 0:
        signal.alarm(patience)
        work()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0

def write():
    with ab.connect(place, blobs=blobs, create=True) as own, own.writer("s/a") as writer:
        writer.write(b"of a child").result()

def is_refused():
    try:
        write()
    except Forked as exc:
        assert "catalog.db was open when this process was forked" in str(exc)
    else:
        raise AssertionError("its commits would be lost when the parent closes the store")

with ab.connect(place, blobs=blobs, create=True) as store:
    store.scopes.create("s")
    store.streams.create("s/a")
    in_database = place.startswith("postgresql")
    fork(write if in_database else is_refused)
    fork(lambda: fork(write if in_database else is_refused))
fork(write)  # the parent has closed it
with ab.connect(place, blobs=blobs, create=False) as store, store.reader("s/a") as reader:
    assert len(list(reader)) == (3 if in_database else 1)
"""


def test_a_child_opens_a_store_of_its_own_where_no_lock_of_its_parent_is_taken_for_its_own(
    place: str, tmp_path: Path
) -> None:
    run(_OPENED_IN_A_CHILD, place, tmp_path / "blobs", PATIENCE_S)


_OPENED_IN_A_BUCKET = """
import os, signal, sys
import anabranch as ab
from anabranch.errors import Forked

folder, first, second, patience = *sys.argv[1:4], int(float(sys.argv[4]))
with ab.connect(folder + "/parent", blobs=first, create=True) as store:
    list(store.blobs.list())
child = os.fork()
if child == 0:
    signal.alarm(patience)
    try:
        ab.connect(folder + "/child", blobs=second, create=True)
    except Forked:
        sys.exit(0)
    sys.exit(1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_bucket_is_refused_where_the_threads_of_its_client_are_missing(tmp_path: Path) -> None:
    s3_server.ensure_credentials()
    run(_OPENED_IN_A_BUCKET, tmp_path, s3_server.fresh_url(), s3_server.fresh_url(), PATIENCE_S)


def hold_the_lock(tell: Tell, folder: Path) -> None:
    """Fork a child that does nothing, then stay in the middle of a transaction."""
    with ab.connect(folder, create=True) as store:
        store.scopes.create("s")
        child = os.fork()
        if child == 0:
            time.sleep(10 * PATIENCE_S)
            os._exit(0)
        with store.catalog.writing():
            tell("child", child)
            time.sleep(10 * PATIENCE_S)


def test_the_lock_of_a_killed_process_is_free_though_a_child_of_it_lives(tmp_path: Path) -> None:
    holder = Child(tmp_path, "holder", hold_the_lock, tmp_path / "river")
    holder.wait_for("child")
    (child,) = (int(words[1]) for words in holder.lines())
    try:
        holder.kill()
        with ab.connect(tmp_path / "river", settings=Settings(catalog_lock_s=5), create=True) as store:
            store.streams.create("s/a")
            assert store.streams.exists("s/a")
    finally:
        os.kill(child, signal.SIGKILL)
