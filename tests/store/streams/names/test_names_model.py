"""Random lives of names against dictionaries: whatever is made, renamed, linked, moved and deleted, each name leads to the
stream that the model says, or says where the one that had it last is now."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import anabranch as ab
from anabranch.catalog.state.former_names import FORMER_NAME, FORMER_NAMES, FORMER_SCOPE
from anabranch.catalog.state.kind import StateKind
from anabranch.catalog.state.lineage import COPIED
from anabranch.errors import NotFound, ScopeRenamed, StreamNotFound, StreamRenamed
from anabranch.model.ids import StreamId

SCOPES = ("r", "s", "t", "u")
NAMES = [f"{scope}/{name}" for scope in SCOPES for name in "xyz"]


NAMING: tuple[StateKind[Any, Any], ...] = (FORMER_NAME, FORMER_NAMES, FORMER_SCOPE, COPIED)


class Names:
    """`streams` and `aliases` lead from names to ids, `former` from names to the id that gave them up last, if it is there."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.store = ab.connect("memory://")
        self.store.scopes.create("r")
        self.scopes = {"r"}
        self.streams: dict[str, StreamId] = {}
        self.aliases: dict[str, StreamId] = {}
        self.former: dict[str, StreamId] = {}
        self.scopes_before: set[str] = set()

    def end(self) -> None:
        """All scopes go, and nothing about names is left."""
        try:
            for scope in sorted(self.scopes):
                self.store.scopes.delete(scope, recursive=True)
            with self.store.catalog.reading() as reading:
                assert not any(map(reading.states, NAMING)) and not reading.export("aliases")
        finally:
            self.store.close()

    # what is drawn

    def taken(self) -> str | None:
        names = sorted({**self.streams, **self.aliases})
        return self.chance.choice(names) if names else None

    def free(self) -> str | None:
        names = [each for each in NAMES if each[0] in self.scopes and each not in {**self.streams, **self.aliases}]
        return self.chance.choice(names) if names else None

    def scope(self) -> str:
        return self.chance.choice(sorted(self.scopes))

    def free_scope(self) -> str | None:
        scopes = sorted({*SCOPES} - self.scopes)
        return self.chance.choice(scopes) if scopes else None

    def own(self, ident: StreamId) -> str:
        return next(name for name, each in self.streams.items() if each == ident)

    def gone(self, ident: StreamId) -> None:
        self.streams = {name: each for name, each in self.streams.items() if each != ident}
        self.aliases = {name: each for name, each in self.aliases.items() if each != ident}
        self.former = {name: each for name, each in self.former.items() if each != ident}

    # what happens

    def create(self) -> None:
        if name := self.free():
            self.streams[name] = self.store.streams.create(name).id

    def alias(self) -> None:
        stream, name = self.taken(), self.free()
        if stream and name:
            self.store.aliases.add(stream, name)
            self.aliases[name] = {**self.streams, **self.aliases}[stream]

    def unalias(self) -> None:
        if self.aliases:
            name = self.chance.choice(sorted(self.aliases))
            self.store.aliases.remove(name)
            del self.aliases[name]

    def rename(self) -> None:
        stream, name = self.taken(), self.free()
        if stream and name:
            ident = {**self.streams, **self.aliases}[stream]
            assert self.store.streams.rename(stream, name).id == ident
            old = self.own(ident)
            del self.streams[old]
            self.former[old] = ident
            self.streams[name] = ident

    def delete(self) -> None:
        if name := self.taken():
            self.store.streams.delete(name)
            self.gone({**self.streams, **self.aliases}[name])

    def create_scope(self) -> None:
        if scope := self.free_scope():
            self.store.scopes.create(scope)
            self.scopes.add(scope)

    def move_scope(self) -> None:
        old, new = self.scope(), self.free_scope()
        if new is None:
            return
        self.store.scopes.rename(old, new)
        self.scopes = self.scopes - {old} | {new}
        self.scopes_before.add(old)
        for table in (self.streams, self.aliases):
            for name in [each for each in table if each[0] == old]:
                ident = table.pop(name)
                table[new + name[1:]] = ident
                self.former[name] = ident

    def delete_scope(self) -> None:
        if len(self.scopes) == 1:
            return
        scope = self.scope()
        self.store.scopes.delete(scope, recursive=True)
        self.scopes.remove(scope)
        for name in [each for each in self.streams if each[0] == scope]:
            self.gone(self.streams[name])
        self.aliases = {name: ident for name, ident in self.aliases.items() if name[0] != scope}

    def copy_scope(self) -> None:
        source, target = self.scope(), self.free_scope()
        if target is None:
            return
        copies = {copied.source: copied.copy for copied in self.store.scopes.copy(source, target)}
        self.scopes.add(target)
        mine = {name: ident for name, ident in self.streams.items() if name[0] == source}
        assert set(copies) == set(mine.values())
        self.streams |= {target + name[1:]: copies[ident] for name, ident in mine.items()}
        self.aliases |= {
            target + name[1:]: copies[ident]
            for name, ident in self.aliases.items()
            if name[0] == source and ident in copies
        }

    # what is so

    def names_lead_where_the_model_says(self) -> None:
        streams = self.store.streams
        assert {scope.name for scope in self.store.scopes.list()} == self.scopes
        assert {str(info.name): info.id for info in streams.list()} == self.streams
        own = {str(alias): str(name) for alias, name in self.store.aliases.of().items()}
        assert own == {alias: self.own(ident) for alias, ident in self.aliases.items()}
        for name, ident in {**self.streams, **self.aliases}.items():
            assert streams.get(name).id == ident
        for name in {*NAMES} - {*self.streams, *self.aliases}:
            self.leads_on_or_nowhere(name)

    def leads_on_or_nowhere(self, name: str) -> None:
        with pytest.raises(NotFound) as caught:
            self.store.streams.get(name)
        error, former = caught.value, self.former.get(name)
        if isinstance(error, StreamRenamed):
            assert former is not None and error.name == self.own(former)
        elif isinstance(error, ScopeRenamed):
            assert name[0] not in self.scopes and name[0] in self.scopes_before and error.name in self.scopes
            assert former is None
        else:
            assert isinstance(error, StreamNotFound) == (name[0] in self.scopes)
            assert former is None


RARE = (Names.delete_scope, Names.copy_scope, Names.delete, Names.create_scope)
OFTEN = (Names.create, Names.alias, Names.alias, Names.unalias, Names.rename, Names.move_scope)


@pytest.mark.parametrize("seed", range(8))
def test_names_resolve_as_in_the_model(seed: int) -> None:
    chance = Random(seed)
    names = Names(chance)
    for _ in range(120):
        chance.choice((*OFTEN, *OFTEN, *OFTEN, *RARE))(names)
        names.names_lead_where_the_model_says()
    names.end()
