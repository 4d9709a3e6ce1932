"""One work of a writer on its way: what is told of it once it has landed or was refused."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import (
    AnabranchError,
    ConditionFailed,
    Conflict,
    Fenced,
    OutOfSequence,
    WriterUnknown,
)
from anabranch.log.commit import WriterName
from anabranch.model.append import Appended, Refusal, Refused
from anabranch.streams.chunk import Piece, origins_of
from anabranch.streams.routes import Routes, Slice


@dataclass(slots=True)
class Flight:
    """The slices that a work was made of, with their first sequence numbers, and the piece they came from. `order` rises
    from work to work."""

    piece: Piece
    slices: list[Slice]
    firsts: list[int]
    routes: Routes
    order: int

    def size_of(self, part: Slice) -> int:
        """The share of a slice in the size of the piece."""
        return int(self.piece.size * part.batch.num_rows // max(1, self.piece.batch.num_rows))

    def back(self) -> Piece:
        """What goes back into the queue where the work was refused."""
        piece = self.piece
        if piece.alone or len(self.slices) > 1:
            return piece
        part = self.slices[0]
        origins = [(state, rows) for state, rows, _ in origins_of(piece, part.rows)]
        points = None if piece.points is None else piece.points.select(part.rows)
        return Piece(part.batch, origins, points)

    def error(self, refused: Refused, writer: WriterName, fence: int | None) -> AnabranchError:
        """What a refusal is told as. `fence`: the writer's own, where it was opened with one."""
        match refused.reason:
            case Refusal.FENCED:
                carried = max((writer.fences.get(part.log, 0) for part in self.slices), default=0)
                return Fenced(carried if fence is None else fence, refused.actual)
            case Refusal.GAP:
                return OutOfSequence(refused.actual, self.firsts[0])
            case Refusal.UNKNOWN_WRITER:
                return WriterUnknown(writer.id, self.firsts[0])
            case Refusal.CONDITION:
                assert self.piece.expected is not None
                return ConditionFailed(self.piece.expected, refused.actual + self.routes.offsets[self.slices[0].log])
            case _:
                return Conflict(f"the append was refused again and again: {refused.reason.value}")


def first_refusal(outcome: tuple[Appended | Refused, ...]) -> Refused | None:
    """The refusal that says why; None where all landed."""
    refusals = [verdict for verdict in outcome if isinstance(verdict, Refused)]
    return next((r for r in refusals if r.reason is not Refusal.UNIT), refusals[0] if refusals else None)
