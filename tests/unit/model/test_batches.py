"""The packed batches of a writer are, to whoever looks, a sequence of batches."""

from __future__ import annotations

from anabranch.model.append import Batch, Batches, Progress


def _batch(number: int) -> Batch:
    return Batch(number, 1, 10 * number, 1_000 + number, 0)


def test_packed_batches_read_as_what_was_packed() -> None:
    plain = tuple(_batch(number) for number in range(3))
    packed = Batches.of(plain)
    assert packed == plain
    assert plain == packed
    assert list(packed) == list(plain)
    assert packed[-1] == plain[-1]
    assert packed[1:] == plain[1:]
    assert len(packed) == 3
    assert Progress(3, 0, packed) == Progress(3, 0, plain)
    assert hash(Progress(3, 0, packed)) == hash(Progress(3, 0, plain))
    assert not Batches()


def test_the_oldest_batch_goes_when_the_kept_ones_are_full() -> None:
    batches = Batches()
    for number in range(5):
        batches = batches.followed_by(_batch(number), kept=3)
    assert [batch.first for batch in batches] == [2, 3, 4]
