"""Transactions of several processes are committed as one."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InvalidArgument, StreamNotFound, TransactionAborted, TransactionNotFound
from anabranch.store import Store
from tests.store.helpers import bodies_of


def flushed(store: Store, *bodies: str, stream: str = "s/a") -> str:
    """An open transaction with these events, left to be committed by another process."""
    made = store.transaction()
    writer = made.writer(stream)
    for body in bodies:
        writer.write(body.encode(), key="k")
    made.flush()
    return made.id


def commit(store: Store, *idents: str, **options: Any) -> bool:
    return store.transactions.commit_together(list(idents), "s/a", **{"request": "series", **options})


def test_what_several_transactions_flushed_appears_together_in_their_order(anywhere: Store) -> None:
    first, second = flushed(anywhere, "1", "2"), flushed(anywhere, "3")
    assert bodies_of(anywhere, "s/a") == []
    assert commit(anywhere, second, first)
    assert bodies_of(anywhere, "s/a") == [b"3", b"1", b"2"]
    assert anywhere.transactions.list() == []


def test_a_repeated_number_changes_nothing_and_leaves_nothing_open(anywhere: Store) -> None:
    assert commit(anywhere, flushed(anywhere, "1"), number=4)
    for number in (4, 3):  # the answer was lost, or an older batch is run again, with transactions of its own
        assert not commit(anywhere, flushed(anywhere, "again"), number=number)
    assert bodies_of(anywhere, "s/a") == [b"1"]
    assert anywhere.transactions.list(ended=False) == []
    assert commit(anywhere, flushed(anywhere, "2"), number=5)
    assert bodies_of(anywhere, "s/a") == [b"1", b"2"]


def test_a_repeat_with_the_same_transactions_is_the_first_commit(anywhere: Store) -> None:
    ident = flushed(anywhere, "1")
    assert commit(anywhere, ident)
    assert not commit(anywhere, ident)
    assert bodies_of(anywhere, "s/a") == [b"1"]


def test_a_commit_can_replace_all_events(anywhere: Store) -> None:
    commit(anywhere, flushed(anywhere, "1"), number=0)
    commit(anywhere, flushed(anywhere, "2"), number=1, replace=True)
    assert bodies_of(anywhere, "s/a") == [b"2"]
    commit(anywhere, number=2, replace=True)
    assert bodies_of(anywhere, "s/a") == []


def test_one_transaction_that_can_not_be_committed_refuses_all(anywhere: Store) -> None:
    anywhere.streams.create("s/b")
    good = flushed(anywhere, "good")
    gone = anywhere.transaction()
    gone.abort()
    with pytest.raises(TransactionAborted):
        commit(anywhere, good, gone.id)
    with pytest.raises(TransactionNotFound):
        commit(anywhere, good, "nothing")
    with pytest.raises(InvalidArgument, match="another stream"):
        commit(anywhere, good, flushed(anywhere, "other", stream="s/b"))
    with anywhere.transaction() as done:
        done.writer("s/a").write(b"done")
    with pytest.raises(InvalidArgument, match="already committed"):
        commit(anywhere, good, done.id)
    with pytest.raises(StreamNotFound):
        anywhere.transactions.commit_together([good], "s/none", request="series")
    assert bodies_of(anywhere, "s/a") == [b"done"]
    assert commit(anywhere, good)
    assert bodies_of(anywhere, "s/a") == [b"done", b"good"]
