"""Pipelines: the process that runs each, since when, and where the next run continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from anabranch.catalog.state.kind import STREAM_KEY, TEXT_KEY, StateKind, state_kind
from anabranch.model.ids import Micros, StreamId

StoredState: TypeAlias = Literal["running", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class PipelineHolder:
    """A process that runs a pipeline. `token` is new for every run. `started_us`: see
    `anabranch.spark.pipelines.process`; None if unknown."""

    pid: int
    host: str
    token: str
    started_us: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """One statement as stored in the row. `fingerprint` identifies the statement that its checkpoint belongs to.
    `starts` holds where its first batch began: for each source, a cut as text. `checkpoint` is the place of its checkpoint:
    an absolute path, a URL, or a path below the folder in which the store has its checkpoints.

    `target_id`, `late_id` and `side_ids`, those of its side outputs `sides`, are the ids of the streams that it feeds, as
    `stream_id_text` writes them. Ids, because the streams may be renamed and other streams may take their names. None, and no
    `side_ids`, before the first preparation.

    `feedback` are the streams that it feeds back to. They are not its results: others feed them too, so they are not in
    `ids`."""

    target: str
    late: str | None
    sources: tuple[str, ...]
    line: int
    fingerprint: str
    checkpoint: str = ""
    starts: Mapping[str, str] = field(default_factory=dict)
    target_id: str | None = None
    late_id: str | None = None
    sides: tuple[str, ...] = ()
    side_ids: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    feedback_ids: tuple[str, ...] = ()

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the streams that it feeds, as far as they are known."""
        return frozenset(each for each in (self.target_id, self.late_id, *self.side_ids) if each is not None)

    @property
    def results(self) -> tuple[tuple[str, str | None], ...]:
        """The streams of its results, each with its id as far as it is known."""
        ids = self.side_ids or (None,) * len(self.sides)
        return ((self.target, self.target_id), *zip(self.sides, ids, strict=True))


@dataclass(frozen=True, slots=True)
class Restart:
    """Where a new generation of checkpoints begins. `places` as text (none: where the statements say); `by`: whether
    times among them are append or event times; `replace`: truncate the earlier results first. `only`: the targets of the
    statements that start over, while the others go on; None: all."""

    places: tuple[str, ...] = ()
    by: str = "append"
    replace: bool = False
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StoredPipeline:
    """A pipeline. `prepared` is True once the generation's checkpoints may exist; from then on its statements are
    fixed. `progress` holds one mapping for each statement, as of the last heartbeat. `made` holds the ids of all
    streams that it created in any generation; it may delete only these. Times in µs."""

    name: str
    text: str
    outputs: tuple[PipelineOutput, ...]
    generation: int
    prepared: bool
    restart: Restart
    state: StoredState
    created_at: int
    started_at: int
    heartbeat_at: int
    ended_at: int | None = None
    holder: PipelineHolder | None = None
    stop_requested: bool = False
    error: str | None = None
    progress: tuple[Mapping[str, Any], ...] = ()
    made: tuple[str, ...] = ()


PIPELINE: Final[StateKind[str, StoredPipeline]] = state_kind(
    "pipeline",
    about="Pipelines: the process that runs each, since when, and where the next run continues.",
    by="the pipeline's name",
    key=TEXT_KEY,
    value=StoredPipeline,
    identity=lambda row: row.name,
    example=(
        "means",
        StoredPipeline(
            "means",
            "insert into iot/means select device, avg(value) from iot/raw group by device",
            (
                PipelineOutput(
                    "iot/means",
                    None,
                    ("iot/raw",),
                    1,
                    "9f86d081884c7d65",
                    "pipelines/means/1/iot.means",
                    {"iot/raw": "2bcd55e1e5c62ee7:0000000000000000@0"},
                    "1122334455667788",
                ),
            ),
            1,
            True,
            Restart(),
            "running",
            1_767_225_600_000_000,
            1_767_225_600_000_000,
            1_767_225_660_000_000,
            holder=PipelineHolder(4711, "host-1", "5d41402abc4b2a76", 86_400_000_000),
            progress=({"target": "iot/means", "lag": 3},),
            made=("1122334455667788",),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ResultsRow:
    """The stream still holds the results of `pipeline`, which was deleted at `deleted_at`."""

    pipeline: str
    deleted_at: Micros


PIPELINE_RESULTS: Final[StateKind[StreamId, ResultsRow]] = state_kind(
    "pipeline_results",
    about="Results that deleted pipelines left in streams.",
    key=STREAM_KEY,
    value=ResultsRow,
    example=(StreamId(0x2BCD55E1E5C62EE7), ResultsRow("means", Micros(1_767_225_600_000_000))),
)
