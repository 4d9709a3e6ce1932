"""Changes of streams that clients request under a request id, defined once for the simulator and for torture.

A `Change` says what it does to the store, and what by its answer a stream took over from another, which ledgers and
joints are told and judge by. The simulator's clients (`clients/`) and torture's processes (`torture.shuffle`) only differ
in how they wait, die and record: objects in one process there, lines of a log here, so an answer can be written as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.copy import CopyResult
from anabranch.core.stitch import JoinResult, MovedRange
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from tests.simulation.ledger import Ledger, Part

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["APPEND", "BY_NAME", "COPY", "RENAME", "Change", "copied_parts", "moved_parts"]

Source = str | StreamRange
Parts = Mapping[SegmentId, Part]


@dataclass(frozen=True)
class Change:
    """One kind of change. `ask` requests it of a store, by a request id, for a target and a source; asked again, it must
    change nothing and answer the same. `parts` returns what the target took over from the source, whose ledger is given,
    by the answer, and raises StreamNotFound if the target is gone; None for a change that takes nothing over. `to_json`
    and `from_json` write and read an answer."""

    name: str
    ask: Callable[[Store, str, str, Source], Any]
    parts: Callable[[Store, Ledger, Any], Parts] | None
    to_json: Callable[[Any], Mapping[str, object]]
    from_json: Callable[[dict[str, Any]], Any]

    def to_text(self, answer: Any) -> str:
        """An answer as a text without spaces."""
        return json.dumps(self.to_json(answer), separators=(",", ":"))

    def from_text(self, text: str) -> Any:
        """The inverse of `to_text`."""
        return self.from_json(json.loads(text))


def moved_parts(source: Ledger, moves: Iterable[MovedRange]) -> Parts:
    """Returns what an append or a stitch took over from one source, by its answer."""
    return {move.new: Part(source, move.old, move.start, move.stop) for move in moves}


def copied_parts(source: Ledger, view: StreamView) -> Parts:
    """Returns what a copy took over: all that it holds, as long as nobody has written to it."""
    return {each.id: Part(source, each.id, each.head, view.length(each.id)) for each in view.ordered}


def _append(store: Store, request: str, target: str, source: Source) -> JoinResult:
    return store.streams.append(source, target, request=request)


def _copy(store: Store, request: str, target: str, source: Source) -> CopyResult:
    return store.streams.copy(source, target, request=request)


def _rename(store: Store, request: str, target: str, source: Source) -> StreamId:
    return store.streams.rename(str(source), target, request=request).id


# The source's events follow those of the target.
APPEND: Final = Change(
    "append",
    _append,
    lambda _, source, joined: moved_parts(source, joined.parts[0][1]),
    JoinResult.to_json,
    JoinResult.from_json,
)
# The target is created with what the source holds.
COPY: Final = Change(
    "copy",
    _copy,
    lambda store, source, copied: copied_parts(source, store.streams.view(copied.copy)),
    CopyResult.to_json,
    CopyResult.from_json,
)
# The source is called as the target from now on.
RENAME: Final = Change("rename", _rename, None, lambda ident: {"id": ident}, lambda told: told["id"])

BY_NAME: Final[Mapping[str, Change]] = {each.name: each for each in (APPEND, COPY, RENAME)}
