"""The benchmark harness runs and says what it found. How fast anything is, is no business of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import in_turn, percentile
from bench.peers import fetch
from bench.result import Bound, Result, Target
from bench.table import page
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_a_quick_run_prints_each_figure_with_its_floor_and_target(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", "one_event", "--json", "--folder", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["quick"] is True
    assert set(said["machine"]) == {"processor", "memory", "kernel", "python", "disk", "libraries"}
    assert list(said["figures"]) == ["one_event"]
    median, tail = said["figures"]["one_event"]["results"]
    assert median["ours"] > 0
    assert median["other"] > 0
    assert median["ratio"] == pytest.approx(median["ours"] / median["other"])
    assert median["target"] == "≤ 2 ×"
    assert median["met"] is (median["ratio"] <= 2)
    assert tail["target"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_quick_run_is_never_kept() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--write"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 2
    assert "--quick" in run.stderr


def test_two_things_are_measured_in_turn_and_compared_round_by_round() -> None:
    order: list[str] = []

    def measure(name: str, value: float) -> float:
        order.append(name)
        return value

    rounds = in_turn(3, lambda: measure("a", 6.0), lambda: measure("b", 3.0))
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert rounds.ratio == 2.0
    assert rounds.spread == (2.0, 2.0)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert percentile([7.0], 0.5) == 7.0


def test_the_page_says_what_is_missed_and_what_was_not_measured() -> None:
    lines = [
        Result("f", "fast enough", "MB/s", 9.0, 10.0, "the floor", 0.9, (0.8, 1.0), Target(Bound.AT_LEAST, 0.7)),
        Result("f", "too slow", "ms", 30.0, 10.0, "the floor", 3.0, None, Target(Bound.AT_MOST, 1.5)),
        Result("f", "late", "ms", 30.0, target=Target(Bound.AT_MOST, 10.0, absolute=True)),
        Result("f", "alone", "k/s", 5.0, target=Target(Bound.AT_LEAST, 5.0), notes=("redis: not installed",)),
        Result("f", "for what it is", "ms", 1.0),
    ]
    figures = {"f": {"title": "a figure", "date": "today", "results": [line.to_json() for line in lines]}}
    text = page({"processor": "one"}, figures)
    assert "Of 4 targets 1 are met, 2 missed: too slow; late, 1 not measured: alone." in text
    assert "| too slow | 30 ms | 10 ms: the floor | 3.00 × | ≤ 1.5 × | **MISSED** |" in text
    assert "| late | 30 ms |  |  | ≤ 10 ms | **MISSED** |" in text
    assert "redis: not installed" in text


def test_peers_names_the_tool_that_fetches_kafka_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fetch, "KAFKA_JARS", tmp_path / "kafka")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install maven" in (fetch._fetch_jars() or "")


def test_the_version_of_kafka_is_that_of_its_jar(tmp_path: Path) -> None:
    assert fetch.jar_version(tmp_path) is None
    (tmp_path / "kafka_2.13-3.9.1.jar").touch()
    assert fetch.jar_version(tmp_path) == "Kafka 3.9.1"
