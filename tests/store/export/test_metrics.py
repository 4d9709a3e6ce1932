"""Metrics: the lag of pipelines and groups by segment, and the size of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.catalog.state.pipeline import PIPELINE, PipelineOutput, Restart, StoredPipeline
from anabranch.export.metrics import exposition, samples
from anabranch.model.columns import TIME_TYPE

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as opened:
        opened.scopes.create("iot")
        opened.streams.create("iot/sensors", schema=pa.schema([("n", pa.int64())]), scaling=2)
        yield opened


def write(store: ab.Store, count: int) -> None:
    with store.writer("iot/sensors") as writer:
        writer.write_batch(pa.table({"n": list(range(count))}))


def values(store: ab.Store, metric: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by those of its labels."""
    found = [each for each in samples(store) if each.metric == metric]
    return {tuple(value for _, value in each.labels): each.value for each in found}


def note_pipeline(store: ab.Store, reached: ab.StreamCut | None) -> None:
    """A pipeline's row as a run leaves it that has read up to a cut."""
    output = PipelineOutput("iot/means", None, ("iot/sensors",), 1, "f")
    progress = (
        {"target": "iot/means"} if reached is None else {"target": "iot/means", "reached": {"old/name": str(reached)}}
    )
    row = StoredPipeline("means", "", (output,), 1, True, Restart(), "stopped", 0, 0, 0, progress=(progress,))
    with store.catalog.writing() as txn:
        txn.put_state(PIPELINE, "means", row)


def test_the_lag_of_a_pipeline_is_counted_now_and_by_segment(store: ab.Store) -> None:
    write(store, 10)
    note_pipeline(store, store.cuts.tail("iot/sensors"))
    of_source = ("means", "iot/means", "iot/sensors")
    assert values(store, "anabranch_pipeline_lag_events") == {of_source: 0}
    assert values(store, "anabranch_pipeline_segment_lag_events") == {}
    write(store, 30)
    by_segment = values(store, "anabranch_pipeline_segment_lag_events")
    assert values(store, "anabranch_pipeline_lag_events") == {of_source: 30}
    assert len(by_segment) == 2
    assert sum(by_segment.values()) == 30
    size = values(store, "anabranch_pipeline_lag_bytes")
    assert size == {of_source: sum(values(store, "anabranch_pipeline_segment_lag_bytes").values())}
    assert size[of_source] > 0


def test_the_skew_of_segments_is_reported(store: ab.Store) -> None:
    schema = pa.schema([("device", pa.string()), ("at", TIME_TYPE)])
    store.streams.create("iot/timed", schema=schema, key="device", time="at", scaling=2)
    with store.writer("iot/timed") as writer:
        for number in range(20):
            writer.write({"device": f"d{number % 5}", "at": (1_700_000_000 + number * (1 + number % 5)) * 1_000_000})
    expected: dict[str, float] = {}
    with store.reader("iot/timed") as reader:
        for event in reader:
            segment, time = str(event.pointer.segment), event.body["at"].timestamp()
            expected[segment] = max(expected.get(segment, 0), time)
    assert len(set(expected.values())) == 2
    note_pipeline(store, store.cuts.tail("iot/timed"))
    metric = "anabranch_pipeline_segment_event_time_seconds"
    assert {labels[-1]: time for labels, time in values(store, metric).items()} == expected
    note_pipeline(store, store.cuts.head("iot/timed"))
    assert values(store, metric) == {}
    note_pipeline(store, store.cuts.tail("iot/sensors"))
    assert values(store, metric) == {}, "without event time"


def test_what_was_truncated_is_no_lag_and_what_is_not_known_is_left_out(store: ab.Store) -> None:
    start = store.cuts.head("iot/sensors")
    write(store, 10)
    tail = store.cuts.tail("iot/sensors")
    write(store, 5)
    store.streams.truncate("iot/sensors", tail)
    note_pipeline(store, start)
    assert set(values(store, "anabranch_pipeline_lag_events").values()) == {5}
    note_pipeline(store, None)  # by an earlier version
    assert values(store, "anabranch_pipeline_lag_events") == {}
    note_pipeline(store, start)
    store.streams.delete("iot/sensors")
    assert values(store, "anabranch_pipeline_lag_events") == {}


def test_the_lag_of_a_group_is_reported_by_segment(store: ab.Store) -> None:
    write(store, 10)
    store.groups.open("iot/dash", streams=["iot/sensors"])
    by_segment = values(store, "anabranch_group_segment_unread_events")
    assert len(by_segment) == 2
    assert sum(by_segment.values()) == 10
    assert all(labels[:2] == ("iot/dash", "iot/sensors") for labels in by_segment)
    assert sum(values(store, "anabranch_group_segment_unread_bytes").values()) > 0


def test_the_size_of_a_store_reports_what_is_live_and_what_will_be_freed(store: ab.Store) -> None:
    def size(kind: str, state: str) -> tuple[float, float]:
        names = ("anabranch_store_bytes", "anabranch_store_files")
        found = [values(store, name)[kind, state] for name in names]
        return found[0], found[1]

    write(store, 100_000)
    written, files = size("fresh", "live")
    assert written > 400_000
    assert files >= 1
    assert size("compacted", "live") == size("fresh", "unused") == (0, 0)
    store.compact(force=True)
    store.collect()
    assert size("fresh", "unused") == (written, files)
    assert size("fresh", "live") == (0, 0)
    assert 0 < size("compacted", "live")[0] < written
    on_disk = sum(file.stat().st_size for file in Path(store.url).rglob("*.parquet"))
    assert size("compacted", "live")[0] == on_disk


def test_the_page_names_every_metric_and_no_other(store: ab.Store) -> None:
    described = re.findall(r"^# HELP (\w+)", exposition(store), re.MULTILINE)
    assert sorted(re.findall(r"^\| `(anabranch_\w+)` \|", PAGE.read_text(), re.MULTILINE)) == sorted(described)
