"""How a transaction ends, whether this process has it in the store or holds it through a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from contextlib import suppress
from types import TracebackType
from typing import Self

from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, AppendUncertain, Closed, TransactionAborted
from anabranch.model.transaction import TransactionState


class TransactionOutcome(Displayed):
    """Whether a transaction has ended, and its `with` block: commits at the end, or aborts after an error."""

    _writers: Sized

    def __init__(self, ident: str | None) -> None:
        """`ident`: None until the transaction has begun."""
        self._ident = ident
        self._ended: TransactionState | None = None
        self._committing = False  # a commit is in progress, or its outcome is unknown

    def _facts(self) -> Mapping[str, object]:
        return {
            "id": self._ident,
            "state": "open" if self._ended is None else self._ended.value,
            "writers": len(self._writers),
        }

    @property
    def id(self) -> str:
        """The id by which another process can resume it."""
        assert self._ident is not None, "it was begun"
        return self._ident

    def commit(self) -> None:
        """Make all events visible, durably."""
        raise NotImplementedError

    def abort(self, reason: str = "aborted by its owner") -> None:
        """Discard all its events."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is not None:
            return
        if error is None:
            try:
                self.commit()
                return
            except AppendUncertain:
                raise  # it may be committed
            except AnabranchError as exc:
                with suppress(AnabranchError):
                    self.abort(f"its commit failed: {exc}")
                raise
        with suppress(AnabranchError):  # then its lease expires
            self.abort(f"{type(error).__name__} in its with block")

    def _require_open(self) -> None:
        if self._ended is TransactionState.ABORTED:
            raise TransactionAborted(self.id, None)
        if self._ended is not None:
            raise Closed("transaction")

    def _require_writable(self) -> None:
        # Needs no lock: a writer calls it under its own, which a commit waits for.
        self._require_open()
        if self._committing:
            raise Closed("transaction")
