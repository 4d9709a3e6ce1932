"""Aliases: they lead to their stream, whatever its name, until they are removed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anabranch.errors import NotFound
from anabranch.model.names import StreamName
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.clients.write import Hand
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["alias"]


def alias(arena: Arena, store: Store, name: str) -> None:
    """Gives streams additional names while they are renamed, uses them, and removes some of them again."""
    for _ in arena.turns(store, 10):
        with suppress(*EXPECTED):
            ledger, link = arena.pick_any(), f"sim/alias{arena.serial()}"
            if _linked(arena, store, ledger, link):
                arena.violations += _leads(arena, ledger, link, store)
                if ledger.label in arena.active and arena.chance(0.5):
                    _write(arena, store, ledger, link, name)
                if arena.chance(0.5):
                    _take_away(arena, store, link)


def _linked(arena: Arena, store: Store, ledger: Ledger, link: str) -> bool:
    stream = ledger.stream  # a repeated request uses the same name, even after a rename

    def note(_: Store, answer: None) -> None:
        arena.done["alias"] += 1
        arena.promises[link] = partial(_leads, arena, ledger, link)

    return arena.ask(store, link, Asked(lambda each: each.aliases.add(stream, link, request=link), note))


def _leads(arena: Arena, ledger: Ledger, link: str, store: Store) -> list[str]:
    """An alias leads to its stream, for as long as the stream exists."""
    with store.catalog.reading() as reading:
        info = reading.stream(StreamName.parse(link))
    if ledger.gone or (info is not None and arena.names.get(info.id) == ledger.label):
        return []
    return [f"{link} is an alias of {ledger.label}, and leads to {None if info is None else info.name}"]


def _write(arena: Arena, store: Store, ledger: Ledger, link: str, name: str) -> None:
    with arena.client(store, name).writer(link) as writer:
        hand = Hand(arena, store, ledger, writer, f"{name}.{arena.serial()}")
        hand.burst()
        hand.settle()


def _take_away(arena: Arena, store: Store, link: str) -> None:
    del arena.promises[link]

    def act(each: Store) -> None:
        with suppress(NotFound):  # it was deleted with its stream
            each.aliases.remove(link, request=f"{link} away")

    if arena.ask(store, f"{link} away", Asked(act, lambda _, answer: None)) and store.streams.exists(link):
        arena.violations.append(f"{link} was taken away, and is still there")
