"""Planted faults of producers; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final

from anabranch.catalog.sqlite import append
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.sqlite.append import AppendBatch
from anabranch.core.producer import decide_sequence
from anabranch.log import commit as commit_module
from anabranch.log.commit import Committer, EncodedCommit
from anabranch.model.append import Commit, Refusal, Refused, Unit, Verdict
from anabranch.model.producer import ProducerSequence, ProducerState
from anabranch.testing.faults import Action
from tests.simulation.clients import ClientMix
from tests.simulation.clients.produce import go_on, produce
from tests.simulation.clients.scale import scale
from tests.simulation.planted_faults.core import PlantedFault, _replaced
from tests.simulation.simulation import FaultRates

__all__ = ["PRODUCER_FAULTS"]


def forget_the_numbers_of_producers() -> AbstractContextManager[None]:
    """Repeated appends are appended again."""

    def faulty(carried: ProducerSequence, producer: ProducerState | None) -> Refused | None:
        refused = decide_sequence(carried, producer)
        return None if refused is not None and refused.reason is Refusal.REPEATED else refused

    return _replaced(append, "decide_sequence", faulty)


def forget_the_epochs_of_producers() -> AbstractContextManager[None]:
    """The owner of an earlier epoch may go on appending."""

    def faulty(carried: ProducerSequence, producer: ProducerState | None) -> Refused | None:
        return decide_sequence(replace(carried, epoch=0 if producer is None else producer.epoch), producer)

    return _replaced(append, "decide_sequence", faulty)


@contextmanager
def store_the_number_after_the_events() -> Iterator[None]:
    """A producer's row is written by a commit of its own, after that of the events."""
    whole, write_rows = SqliteCatalog.commit, AppendBatch._write_rows
    kept: dict[int, list[tuple[object, ...]]] = {}  # by catalog: tasks that commit concurrently share what is planted

    def write(self: AppendBatch, name: str, values: list[tuple[object, ...]]) -> None:
        if name == "put_producer":
            kept.setdefault(id(self._database), []).extend(values)
        else:
            write_rows(self, name, values)

    def commit(self: SqliteCatalog, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        verdicts = whole(self, commit)
        rows = kept.pop(id(self._database), [])
        self._runtime.tasks.sleep(0.002)
        with self.writing() as txn:
            for row in rows:
                txn._execute("put_producer", row)  # type: ignore[attr-defined]
        return verdicts

    with _replaced(AppendBatch, "_write_rows", write), _replaced(SqliteCatalog, "commit", commit):
        yield


@contextmanager
def repeat_a_lost_append_without_its_number() -> Iterator[None]:
    """An append whose answer was lost is committed again as if it had no producer."""
    real, missing = commit_module._units, Committer._commit_missing
    repeated: list[EncodedCommit] = []  # tasks that resolve concurrently share what is planted

    def units(encoded: EncodedCommit) -> tuple[Unit, ...]:
        found = real(encoded)
        lost = any(each is encoded for each in repeated)
        return tuple(replace(unit, producer=None) for unit in found) if lost else found

    def faulty(self: Committer, encoded: EncodedCommit, units: tuple[Unit, ...]) -> list[commit_module.Outcome]:
        repeated.append(encoded)
        return missing(self, encoded, units)

    with _replaced(commit_module, "_units", units), _replaced(Committer, "_commit_missing", faulty):
        yield


_MIXES: Final[Sequence[ClientMix]] = ((("produce", produce), ("produce", produce), ("go_on", go_on), ("scale", scale)),)
_LOST: Final[FaultRates] = {"catalog.commit": {Action.UNCERTAIN_LANDED: 0.1, Action.UNCERTAIN_LATE: 0.05}}
_TWICE: Final = ("stored more than once", "was answered by", "out of order")
PRODUCER_FAULTS: Final[Sequence[PlantedFault]] = (
    PlantedFault(forget_the_numbers_of_producers, _TWICE, mixes=_MIXES),
    PlantedFault(forget_the_epochs_of_producers, (*_TWICE, "goes on after"), mixes=_MIXES),
    PlantedFault(store_the_number_after_the_events, (*_TWICE, "goes on after"), mixes=_MIXES),
    PlantedFault(repeat_a_lost_append_without_its_number, _TWICE, _LOST, _MIXES),
)
