"""Aliases and scopes from the command line, ranges in brackets, and answers that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import anabranch as ab
from anabranch.catalog.port import Subject, Writing
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import AppendUncertain
from anabranch.spark.pipelines import record as pipeline_row
from anabranch.spark.pipelines.record import PipelineOutput
from tests.cli.kit import Line, column


def test_an_alias_is_made_listed_used_and_taken_away(sensors: Line) -> None:
    assert sensors("alias", "iot/newest", "iot/sensors", "--json").json == {
        "alias": "iot/newest",
        "stream": "iot/sensors",
    }
    assert "'iot/newest' is an alias of 'iot/sensors'" in sensors("alias", "iot/newest", "iot/sensors").err
    assert sensors("alias", "--json").json == [{"alias": "iot/newest", "stream": "iot/sensors"}]
    assert "iot/newest  iot/sensors" in sensors("alias").out
    assert "iot/newest" in sensors("alias", "--scope", "iot").out
    assert "scope 'out' not found" in sensors.refused("alias", "--scope", "out")
    assert "omit either the names" in sensors.refused("alias", "iot/a", "iot/sensors", "--scope", "iot")
    assert sensors("read", "iot/newest").out == sensors("read", "iot/sensors").out != ""
    assert sensors("query", "SELECT count(*) AS n FROM iot.newest", "--format", "jsonl").json == {"n": 3}
    assert "ALIASES" in sensors("stream", "list").out and "iot/newest" in sensors("stream", "show", "iot/newest").out
    assert sensors("stream", "show", "iot/sensors", "--json").json["aliases"] == ["iot/newest"]
    assert "is an alias of stream" in sensors.refused("stream", "create", "iot/newest")
    assert "expected an alias and its stream" in sensors.refused("alias", "iot/newest")
    sensors("unalias", "iot/newest")
    assert (
        sensors.refused("unalias", "iot/newest") == "alias 'iot/newest' not found; list aliases with: anabranch alias"
    )
    assert "ALIASES" not in sensors("stream", "list").out


def test_a_scope_is_renamed_and_the_old_name_says_so(sensors: Line) -> None:
    assert sensors("scope", "rename", "iot", "plant", "--json").json["former"] == "iot"
    assert sensors.refused("read", "iot/sensors") == "stream 'iot/sensors' was renamed to 'plant/sensors'"
    assert sensors.refused("stream", "list", "iot") == "scope 'iot' was renamed to 'plant'"
    # What makes a stream where there is none makes none where that has another name by now.
    assert sensors.refused("write", "iot/sensors") == "stream 'iot/sensors' was renamed to 'plant/sensors'"
    assert sensors.refused("write", "iot/new") == "scope 'iot' was renamed to 'plant'"
    assert sensors.refused("stream", "hold", "iot/sensors") == "stream 'iot/sensors' was renamed to 'plant/sensors'"
    assert sensors.refused("bytes", "put", "iot/sensors") == "stream 'iot/sensors' was renamed to 'plant/sensors'"
    assert column(sensors("scope", "list", "--json").json, "name") == ["plant"]
    assert "was renamed to 'iot'" in sensors("scope", "move", "plant", "iot").err
    assert sensors("read", "iot/sensors").out


def test_a_scope_is_deleted_with_all_it_holds_if_asked(sensors: Line) -> None:
    assert "still holds 2 stream(s)" in sensors.refused("scope", "delete", "iot", "--yes")
    sensors("scope", "delete", "iot", "--recursive", "--yes")
    assert sensors("scope", "list", "--json").json == []
    assert "scope 'iot' not found" in sensors.refused("scope", "delete", "iot", "-r")


def test_a_scope_that_a_running_pipeline_uses_is_left_alone(sensors: Line) -> None:
    with ab.connect(sensors.store, create=True) as store:
        holder = pipeline_row.this_process("t")
        output = PipelineOutput("out/means", None, ("iot/sensors",), 1, "f")
        now = store.runtime.clock.now()
        pipeline_row.claim(store.catalog, "means", "", [output], holder, now=now)
        for verb in (("scope", "delete", "iot", "-r", "--yes"), ("scope", "rename", "iot", "plant")):
            assert "pipeline 'means' is already running" in sensors.refused(*verb)
        pipeline_row.finish(store.catalog, "means", holder, now=now)
    sensors("scope", "delete", "iot", "-r", "--yes")


def test_a_scope_copy_takes_the_stores_own_streams_only_if_asked(sensors: Line) -> None:
    sensors("stream", "create", "iot/_own")
    assert sensors("scope", "copy", "iot", "b", "--json").json["streams"] == 2
    assert sensors("scope", "copy", "iot", "b", "--internal", "--json").json["streams"] == 3


def test_ranges_are_written_in_brackets_or_with_options(sensors: Line) -> None:
    pointers = column(sensors("read", "iot/sensors", "--meta").rows, "_pointer")
    second = pointers[1]
    assert sensors("copy", f"iot/sensors[{second},]", "iot/rest", "--json").json["events"] == 2
    assert sensors("append", f"iot/sensors[head,{second}]", "iot/rest", "--json").json["appended"] == 1
    parts = (f"iot/sensors[{second},tail]", f"iot/sensors[,{second}]", "iot/rest")
    assert sensors("stitch", *parts, "--into", "iot/all", "--json").json["events"] == 6
    seen = [row["celsius"] for row in sensors("read", "iot/all", "--format", "jsonl").rows]
    assert seen == [2.5, 3.5, 1.5, 2.5, 3.5, 1.5]
    assert "not both" in sensors.refused("copy", "iot/sensors[,tail]", "iot/x", "--from", second, "--to", "tail")
    assert "is not a range of a stream" in sensors.refused("copy", f"iot/sensors[{second}", "iot/x")
    assert "is not a position in a stream" in sensors.refused("stitch", "iot/sensors[then,]", "--into", "iot/x")


def test_an_answer_that_was_lost_is_asked_for_again(sensors: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, lost = SqliteCatalog.writing, [2]

    @contextmanager
    def losing(catalog: SqliteCatalog, on: Subject | None = None) -> Iterator[Writing]:
        with whole(catalog, on) as txn:
            yield txn
        if lost[0]:
            lost[0] -= 1
            raise AppendUncertain("the answer was lost")

    monkeypatch.setattr(SqliteCatalog, "writing", losing)
    assert sensors("append", "iot/sensors", "iot/sensors", "--json").json["appended"] == 3
    assert lost == [0]
    assert sensors("stream", "show", "iot/sensors", "--json").json["events"] == 6
    lost[0] = 100
    assert sensors.refused("rename", "iot/sensors", "iot/else") == "the answer was lost"
    lost[0] = 0
    assert sensors("stream", "show", "iot/else", "--json").json["events"] == 6
