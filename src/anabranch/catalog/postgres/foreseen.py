"""What a transaction has found that it may be asked again, or was told that it will be asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anabranch.catalog import rows
from anabranch.catalog.postgres.flight import Asked
from anabranch.model.ids import LogId

_STREAMS: Final = frozenset({"stream_by_name", "stream_by_alias", "stream_by_id"})
_KEPT: Final = _STREAMS | {"scope", "piece_again"}
_RESERVE: Final = "reserve_logs"

# By the change, the questions that it may answer anew. What is not here, touches none of those kept.
_CHANGED: Final = {
    **dict.fromkeys(("insert_stream", "update_stream", "drop_stream", "put_schema"), _STREAMS),
    **dict.fromkeys(("put_piece", "drop_piece"), frozenset({"stream_by_alias"})),  # and the piece itself
    **dict.fromkeys(("put_scope", "drop_scope"), frozenset({"scope"})),
}


class Foreseen:
    """Answers of a transaction that nobody runs beside, until it changes what they told; and logs reserved for it."""

    def __init__(self) -> None:
        self._answers: dict[Asked, list[rows.Row]] = {}
        self._soon: dict[Asked, None] = {}  # to be asked with the next question
        self.logs: list[LogId] = []

    def expect(self, asked: Sequence[Asked]) -> None:
        """Ask this with the next question, unless it is known."""
        self._soon.update(dict.fromkeys(each for each in asked if each not in self._answers))

    def expect_logs(self, stream: int) -> None:
        """Reserve as many logs as the stream has open segments, with the next question."""
        self._soon[_RESERVE, (stream,)] = None

    def take(self) -> list[Asked]:
        """What is to be asked with a question that is asked now."""
        soon, self._soon = list(self._soon), {}
        return soon

    def found(self, asked: Asked, answer: list[rows.Row]) -> None:
        """An answer came."""
        name, values = asked
        if name == _RESERVE:
            self.logs += (LogId(row[0]) for row in answer)
        elif name in _KEPT:
            self._answers[name, values] = answer
            if name in _STREAMS and answer:
                self._answers["stream_by_id", (answer[0][0],)] = answer

    def get(self, asked: Asked) -> list[rows.Row] | None:
        """The answer, where it is known."""
        return self._answers.get(asked) if asked[0] in _KEPT else None

    def changed(self, statement: str, values: Any) -> None:
        """Forget what a change may answer anew."""
        if statement in _CHANGED:
            gone = _CHANGED[statement]
            self._answers = {asked: answer for asked, answer in self._answers.items() if asked[0] not in gone}
        if statement in ("put_piece", "drop_piece"):
            self._answers.pop(("piece_again", tuple(values[:2])), None)
        elif statement.startswith(("wipe_", "load_")):
            self._answers.clear()

    def is_free(self, scope: str, name: str, stream: int) -> bool:
        """True where it is known that no stream but this one is called so."""
        answer = self._answers.get(("stream_by_name", (scope, name)))
        return answer is not None and all(row[0] == stream for row in answer)
