"""Random lives of names against dictionaries: whatever is made, renamed, linked, moved and deleted, each name leads to the
stream that the model says, or says where the one that had it last is now."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import anabranch as ab
from anabranch.errors import NotFound, ScopeRenamed, StreamNotFound, StreamRenamed
from anabranch.model.ids import StreamId

SCOPES = ("r", "s", "t")
NAMES = [f"{scope}/{name}" for scope in SCOPES for name in "xy"]


class Names(RuleBasedStateMachine):
    """`streams` and `aliases` lead from names to ids, `former` from names to the id that gave them up last, if it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ab.connect("memory://")
        self.scopes: set[str] = set()
        self.streams: dict[str, StreamId] = {}
        self.aliases: dict[str, StreamId] = {}
        self.former: dict[str, StreamId] = {}
        self.scopes_before: set[str] = set()

    def teardown(self) -> None:
        try:
            for scope in sorted(self.scopes):
                self.store.streams.delete_scope(scope, recursive=True)
            with self.store.catalog.reading() as reading:
                kinds = ("alias", "aliases", "renamed", "former names", "renamed scope", "copied")
                assert not [piece for kind in kinds for piece in reading.pieces(kind)]
        finally:
            self.store.close()

    # what is drawn

    def taken(self, data: st.DataObject) -> str | None:
        names = sorted({**self.streams, **self.aliases})
        return data.draw(st.sampled_from(names)) if names else None

    def free(self, data: st.DataObject) -> str | None:
        names = [each for each in NAMES if each[0] in self.scopes and each not in {**self.streams, **self.aliases}]
        return data.draw(st.sampled_from(names)) if names else None

    def scope(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.scopes)))

    def free_scope(self, data: st.DataObject) -> str | None:
        scopes = sorted({*SCOPES} - self.scopes)
        return data.draw(st.sampled_from(scopes)) if scopes else None

    def own(self, ident: StreamId) -> str:
        return next(name for name, each in self.streams.items() if each == ident)

    def gone(self, ident: StreamId) -> None:
        self.streams = {name: each for name, each in self.streams.items() if each != ident}
        self.aliases = {name: each for name, each in self.aliases.items() if each != ident}
        self.former = {name: each for name, each in self.former.items() if each != ident}

    # what happens

    @initialize()
    def first(self) -> None:
        self.store.streams.create_scope("r")
        self.scopes.add("r")

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        if name := self.free(data):
            self.streams[name] = self.store.streams.create(name).id

    @rule(data=st.data())
    def alias(self, data: st.DataObject) -> None:
        stream, name = self.taken(data), self.free(data)
        if stream and name:
            self.store.streams.alias(stream, name)
            self.aliases[name] = {**self.streams, **self.aliases}[stream]

    @rule(data=st.data())
    def unalias(self, data: st.DataObject) -> None:
        if self.aliases:
            name = data.draw(st.sampled_from(sorted(self.aliases)))
            self.store.streams.unalias(name)
            del self.aliases[name]

    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        stream, name = self.taken(data), self.free(data)
        if stream and name:
            ident = {**self.streams, **self.aliases}[stream]
            assert self.store.streams.rename(stream, name).id == ident
            old = self.own(ident)
            del self.streams[old]
            self.former[old] = ident
            self.streams[name] = ident

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if name := self.taken(data):
            self.store.streams.delete(name)
            self.gone({**self.streams, **self.aliases}[name])

    @rule(data=st.data())
    def create_scope(self, data: st.DataObject) -> None:
        if scope := self.free_scope(data):
            self.store.streams.create_scope(scope)
            self.scopes.add(scope)

    @rule(data=st.data())
    def move_scope(self, data: st.DataObject) -> None:
        old, new = self.scope(data), self.free_scope(data)
        if new is None:
            return
        self.store.streams.move_scope(old, new)
        self.scopes = self.scopes - {old} | {new}
        self.scopes_before.add(old)
        for table in (self.streams, self.aliases):
            for name in [each for each in table if each[0] == old]:
                ident = table.pop(name)
                table[new + name[1:]] = ident
                self.former[name] = ident

    @rule(data=st.data(), sure=st.integers(0, 2))
    def delete_scope(self, data: st.DataObject, sure: int) -> None:
        if len(self.scopes) == 1 or sure:
            return
        scope = self.scope(data)
        self.store.streams.delete_scope(scope, recursive=True)
        self.scopes.remove(scope)
        for name in [each for each in self.streams if each[0] == scope]:
            self.gone(self.streams[name])
        self.aliases = {name: ident for name, ident in self.aliases.items() if name[0] != scope}

    @rule(data=st.data())
    def copy_scope(self, data: st.DataObject) -> None:
        source, target = self.scope(data), self.free_scope(data)
        if target is None:
            return
        copies = {copied.source: copied.copy for copied in self.store.streams.copy_scope(source, target)}
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

    @invariant()
    def names_lead_where_the_model_says(self) -> None:
        streams = self.store.streams
        assert {scope.name for scope in streams.scopes()} == self.scopes
        assert {str(info.name): info.id for info in streams.list()} == self.streams
        own = {str(alias): str(name) for alias, name in streams.aliases().items()}
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


TestNames = Names.TestCase
TestNames.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
