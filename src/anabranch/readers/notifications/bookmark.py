"""Bookmarks: up to which notification a listener that has a name was told, so that it goes on there in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from anabranch import limits
from anabranch.catalog.port import Catalog, Checkpointed, Reading, Writing
from anabranch.core.notifications import GroupPicture
from anabranch.errors import AppendUncertain, Conflict, InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

T = TypeVar("T")
KIND: Final = "listener"  # pieces by the listener's name


class Told(NamedTuple):
    """What a listener was told last: the id of the notification, and a cut of the notification stream behind which those
    that follow lie, at most a batch before them. A group's listener has what was known of the group there, too."""

    id: int
    cut: StreamCut
    picture: GroupPicture | None = None


class Bookmark:
    """That of one listener, to `stream` or with None to all; or to one kind of what a reader group tells, `group` as
    `KIND of NAME`. It belongs to who took it last. Any number of processes may have one; each is for one thread at a
    time."""

    def __init__(
        self, catalog: Catalog, runtime: Runtime, name: str, stream: StreamId | None, *, group: str | None = None
    ) -> None:
        """Raises InvalidArgument for what is no name."""
        if not isinstance(name, str) or not 0 < len(name) <= limits.NAME_CHARS_MAX:
            raise InvalidArgument(f"a listener's name is text of 1 to {limits.NAME_CHARS_MAX} characters")
        self._catalog = catalog
        self._name = name
        self._listens_to = {"stream": None if stream is None else f"{stream:016x}"} | (
            {} if group is None else {"group": group}
        )
        self._owner = token(runtime.ids)

    def take(self) -> Told | None:
        """Take it over from whoever has it, who then gets Conflict. Returns where it stands, None where nobody of this name
        was ever told anything. Raises InvalidArgument where the listener of this name listens to something else."""

        def act(txn: Writing) -> Told | None:
            piece = txn.piece(KIND, self._name)
            if piece is None:
                self._put(txn, None)
                return None
            if {name: piece.value.get(name) for name in ("stream", "group")} != {"group": None, **self._listens_to}:
                raise InvalidArgument(
                    f"listener '{self._name}' listens to something else; Store.forget_listener lets it begin anew"
                )
            told = _told(piece)
            self._put(txn, told)
            return told

        return self._insist(act)

    def keep(self, told: Told) -> None:
        """Note, durably, what the listener was told. Raises Conflict where another process has taken the name over."""

        def act(txn: Writing) -> None:
            self._need(txn)
            self._put(txn, told)

        self._insist(act)

    def check(self) -> None:
        """Raise Conflict where another process has taken the name over."""
        with self._catalog.reading() as reading:
            self._need(reading)

    def _need(self, txn: Reading) -> None:
        piece = txn.piece(KIND, self._name)
        if piece is None or piece.value["owner"] != self._owner:
            raise Conflict(f"another process listens as '{self._name}' now, or it was forgotten")

    def _put(self, txn: Writing, told: Told | None) -> None:
        known = None if told is None else [told.id, str(told.cut)]
        value: dict[str, Any] = {**self._listens_to, "owner": self._owner, "told": known}
        if told is not None and told.picture is not None:
            value["picture"] = told.picture.to_json()
        txn.put_piece(Checkpointed(KIND, self._name, value))

    def _insist(self, act: Callable[[Writing], T]) -> T:
        try:
            return self._once(act)
        except AppendUncertain:
            return self._once(act)  # done twice it is the same

    def _once(self, act: Callable[[Writing], T]) -> T:
        with self._catalog.writing(f"{KIND} {self._name}") as txn:
            return act(txn)


def forget(catalog: Catalog, name: str) -> None:
    """Let a listener of this name begin anew. One that was never there is let be."""
    with catalog.writing(f"{KIND} {name}") as txn:
        txn.drop_piece(KIND, name)


def _told(piece: Checkpointed) -> Told | None:
    told: Any = piece.value["told"]
    if told is None:
        return None
    picture: Any = piece.value.get("picture")
    known = None if picture is None else GroupPicture.from_json(picture)
    return Told(int(told[0]), StreamCut.parse(told[1]), known)
