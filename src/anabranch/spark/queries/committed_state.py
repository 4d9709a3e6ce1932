"""Reads the state that Spark keeps for a statement, from its checkpoint: as committed, also while the query runs.

Spark's source of state decodes it. It has one frame for each part of an operator. State that is kept by bucket holds rows of many
keys (`state_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions
from pyspark.sql.types import AtomicType, StructType

from anabranch import limits
from anabranch.catalog.state.query_question import CommittedState, StateRow, StateWanted
from anabranch.errors import InvalidArgument
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.pipelines import record
from anabranch.spark.pipelines.checkpoint_places import output_checkpoint
from anabranch.spark.pipelines.windows.row_blobs import BUCKET
from anabranch.spark.queries.state_rows import bucket_rows, has_part, plain_members
from anabranch.spark.source.checkpoint import last_committed
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["committed_state"]

_WHOLE: Final = "state"  # the part of an operator that has no others


class _Part(NamedTuple):
    """A part of an operator, and Spark's options for reading it."""

    operator: str
    name: str
    options: Mapping[str, str]


def committed_state(store: Store, spark: SparkSession, name: str, wanted: StateWanted) -> CommittedState:
    """The rows of the state of query `name` that are wanted. Raises PipelineNotFound; InvalidArgument before the first
    micro-batch, and for a micro-batch whose state Spark does not have, or not any more."""
    outputs = record.find(store.catalog, name).outputs
    output = next((each for each in outputs if wanted.target in (each.target, *each.sides)), None)
    if output is None:
        known = ", ".join(str(each.target) for each in outputs)
        raise InvalidArgument(f"query '{name}' has no statement for {wanted.target}; its results are {known}")
    if not output.checkpoint:
        raise InvalidArgument(f"the statement for {wanted.target} has never run, so it has no state")
    checkpoint = output_checkpoint(store, output.checkpoint)
    last = last_committed(checkpoint)
    if last < 0:
        raise InvalidArgument(
            f"the statement for {wanted.target} has not committed a micro-batch yet, so it has no state"
        )
    batch = last if wanted.batch is None else wanted.batch
    rows: list[StateRow] = []
    size = 0
    for row in _rows(spark, checkpoint, batch, last, wanted):
        size += len(json.dumps(row.to_json()))
        if len(rows) == wanted.rows_max or (rows and size > limits.DEPLOYMENT_STATE_BYTES_MAX):
            return CommittedState(output.target, batch, tuple(rows), more=True)
        rows.append(row)
    return CommittedState(output.target, batch, tuple(rows), more=False)


def _rows(
    spark: SparkSession, checkpoint: CheckpointFolder, batch: int, last: int, wanted: StateWanted
) -> Iterator[StateRow]:
    for operator in spark.read.format("state-metadata").load(checkpoint.for_spark).collect():
        if not operator.minBatchId <= batch <= last:
            raise InvalidArgument(
                f"Spark has the state after micro-batches {operator.minBatchId} to {last} of {wanted.target}, not {batch}"
            )
        for part in _parts(operator):
            options = {**part.options, "operatorId": str(operator.operatorId), "batchId": str(batch)}
            frame = spark.read.format("statestore").options(**options).load(checkpoint.for_spark)
            yield from _rows_of_part(frame, part, wanted)


def _parts(operator: Any) -> Iterator[_Part]:
    """The parts of an operator, which has a row of metadata for each of its stores."""
    name: str = operator.operatorName
    properties = json.loads(operator.operatorProperties or "{}")
    if name == "symmetricHashJoin":
        # Older state formats have several stores a side, which Spark reads as one.
        if operator.stateStoreName in ("default", "left-keyToNumValues"):
            yield from (_Part(name, side, {"joinSide": side}) for side in ("left", "right"))
    elif "stateVariables" in properties:
        for variable in properties["stateVariables"]:
            if variable["stateVariableType"] == "ValueState":
                yield _Part(name, variable["stateName"], {"stateVarName": variable["stateName"]})
    else:
        yield _Part(name, _WHOLE, {"storeName": operator.stateStoreName})


def _rows_of_part(frame: DataFrame, part: _Part, wanted: StateWanted) -> Iterator[StateRow]:
    kind = frame.schema["key"].dataType
    assert isinstance(kind, StructType), "Spark's state has keys of columns"
    if kind.names == [BUCKET]:
        for row in frame.select("value").toLocalIterator():
            for field, key, value in bucket_rows(row.value.asDict()):
                if wanted.key is None or has_part(key, wanted.key):
                    yield StateRow(part.operator, f"{part.name}.{field}", key, value)
        return
    if wanted.key is not None:
        texts = [
            functions.col("key")[each.name].cast("string") for each in kind if isinstance(each.dataType, AtomicType)
        ]
        frame = frame.where(functions.array_contains(functions.array(*texts), wanted.key))
    for row in frame.select("key", "value").limit(wanted.rows_max + 1).collect():
        values = () if row.value is None else row.value
        names = () if row.value is None else row.value.__fields__
        yield StateRow(part.operator, part.name, plain_members(kind.names, row.key), plain_members(names, values))
