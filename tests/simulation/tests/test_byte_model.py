"""The model of byte streams: what writers and readers may see passes, and each wrong is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.byte_model import ByteModel

DATA = bytes(range(100))


def lived() -> ByteModel:
    """Two writers: the first flushed 60 bytes and wrote 40 more, of which 10 are there; the second goes on behind them."""
    model = ByteModel("s/b")
    first = model.opened("first", 0, 0)
    first.data += DATA[:60]
    model.flushed(first)
    first.data += DATA[60:]
    second = model.opened("second", 70, 60)
    second.data += b"second"
    model.flushed(second)
    model.read(20, DATA[20:65], "reader")
    return model


STORED = DATA[:70] + b"second"


def test_what_sessions_wrote_one_after_another_is_explained() -> None:
    assert lived().judge(0, STORED) == []


def test_a_beginning_that_was_let_go_of_is_no_loss() -> None:
    model = lived()
    model.asked = 64
    model.began(50, 0, "its writer")
    assert model.judge(50, STORED[50:]) == []


def lose_the_end(model: ByteModel) -> list[str]:
    return model.judge(0, STORED[:-1])


def lose_what_the_first_flushed(model: ByteModel) -> list[str]:
    return model.judge(0, DATA[:50] + b"x" * 20 + b"second")


def end_the_second_in_the_midst_of_the_first(model: ByteModel) -> list[str]:
    return model.judge(0, DATA[:70] + b"second" + DATA[76:])


def show_another_byte(model: ByteModel) -> list[str]:
    model.read(64, b"\x00", "another")
    return model.judge(0, STORED)


def let_go_of_too_much(model: ByteModel) -> list[str]:
    model.asked = 49
    return model.judge(50, STORED[50:])


def go_back_with_the_head(model: ByteModel) -> list[str]:
    model.asked = 60
    model.began(50, 0, "its writer")
    model.began(40, 50, "a reader")
    return model.judge(50, STORED[50:])


def go_back_with_the_tail(model: ByteModel) -> list[str]:
    model.opened("third", 70, 76)
    return model.judge(0, STORED)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lose_the_end, "found its tail at 75"),
        (lose_what_the_first_flushed, "what first flushed from 0 to 60 is not there"),
        (end_the_second_in_the_midst_of_the_first, "nobody wrote what is there from 70 on"),
        (show_another_byte, "read another byte at 64"),
        (let_go_of_too_much, "nobody let go of more than what lies before 49"),
        (go_back_with_the_head, "found its head at 40, and it had been at 50"),
        (go_back_with_the_tail, "writer third found its tail at 70"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_wrong_notification_is_found(wrong: Callable[[ByteModel], list[str]], told: str) -> None:
    found = wrong(lived())
    assert any(told in each for each in found), found
