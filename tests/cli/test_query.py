"""SQL over streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch import connect
from anabranch.model.names import StreamName
from anabranch.query import Query
from anabranch.query import dataset as dataset_module
from anabranch.query.dataset import StreamDataset, time_bounds
from tests.cli.kit import Line


def ask(line: Line, sql: str) -> list[object]:
    return line("query", sql).rows


def test_a_stream_is_a_table_under_both_its_names(sensors: Line) -> None:
    expected = [{"device": "a", "n": 2, "top": 3.5}, {"device": "b", "n": 1, "top": 2.5}]
    for name in ("iot.sensors", '"iot/sensors"', 'iot."sensors"', '"iot" . sensors'):
        sql = f"SELECT device, count(*) AS n, max(celsius) AS top FROM {name} GROUP BY ALL ORDER BY ALL"
        assert ask(sensors, sql) == expected
    assert ask(sensors, "FROM iot.raw") == []


def test_a_query_may_be_the_first_to_ask_for_notifications(sensors: Line) -> None:
    for name in ("_store.notifications", '"_store/notifications"'):
        assert {"kind": "created", "stream": "iot/sensors", "segments": 1} in ask(
            sensors, f"SELECT kind, stream, segments FROM {name}"
        )


def test_names_may_need_quotes(line: Line) -> None:
    line("write", "my-scope/the.stream", stdin='{"a":1}\n')
    assert ask(line, 'SELECT * FROM "my-scope/the.stream"') == [{"a": 1}]
    assert ask(line, 'SELECT * FROM "my-scope"."the.stream"') == [{"a": 1}]


def test_streams_join_each_other_and_themselves(sensors: Line) -> None:
    sensors("write", "iot/names", stdin='{"device":"a","name":"Attic"}\n')
    sql = "SELECT name, sum(celsius) AS c FROM iot.sensors JOIN iot.names USING (device) GROUP BY ALL"
    assert ask(sensors, sql) == [{"name": "Attic", "c": 5.0}]
    assert ask(sensors, "SELECT count(*) AS n FROM iot.sensors x, iot.sensors y") == [{"n": 9}]
    assert ask(
        sensors,
        "WITH q AS (FROM iot.sensors) SELECT count(*) AS n FROM q WHERE device IN (FROM iot.names SELECT device)",
    ) == [{"n": 2}]


def test_times_are_times(sensors: Line) -> None:
    sql = """SELECT "at" FROM iot.sensors WHERE "at" >= TIMESTAMPTZ '2026-01-01 00:00:01Z' ORDER BY "at" LIMIT 1"""
    assert ask(sensors, sql) == [{"at": "2026-01-01T00:00:01.000000Z"}]


def test_places_of_events_are_there_when_they_are_named(sensors: Line) -> None:
    assert ask(sensors, "SELECT * FROM iot.sensors LIMIT 1") == [
        {"device": "a", "at": "2026-01-01T00:00:00.000000Z", "celsius": 1.5}
    ]
    assert ask(sensors, "SELECT _offset, _segment FROM iot.sensors WHERE device = 'b'") == [
        {"_offset": 1, "_segment": 0}
    ]


def test_formats_files_and_other_statements(sensors: Line, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 1 AS a;")
    assert sensors("query", "--file", tmp_path / "q.sql", "--format", "csv").out == '"a"\n1\n'
    assert sensors("query", "-", "--format", "table", stdin="SELECT 'x' AS a").out == "a\nx\n"
    assert [row["column_name"] for row in sensors("query", "DESCRIBE iot.sensors").rows] == ["device", "at", "celsius"]
    assert sensors("query", "CREATE TABLE t AS FROM iot.sensors; SELECT count(*) AS n FROM t").rows == [{"n": 3}]
    assert sensors("query", "CREATE TABLE t (a int)").rows in ([], [{"Count": 0}])


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELEC 1", 'line 1: Parser Error: syntax error at or near "SELEC"'),
        ("SELECT 1,\n nope FROM iot.sensors", 'Binder Error: Referenced column "nope" not found'),
        ("FROM iot.nope", "there is no stream"),
        ("SELECT 'x'::int FROM iot.sensors", "Conversion Error"),
        ("SELECT at FROM iot.sensors", 'write a column of that name as "at"'),
    ],
)
def test_a_wrong_query_is_one_line(sensors: Line, sql: str, complaint: str) -> None:
    assert complaint in sensors.refused("query", sql)


def test_a_query_is_said_once(sensors: Line, tmp_path: Path) -> None:
    assert "say the query, or --file" in sensors.refused("query")
    assert "say the query, or --file" in sensors.refused("query", "SELECT 1", "--file", "x.sql")
    assert "can't be read" in sensors.refused("query", "--file", tmp_path / "nope.sql")


def test_only_the_columns_and_times_that_are_asked_for_are_read(sensors: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], tuple[int, int] | None]] = []
    batches = StreamDataset._batches

    def spy(
        self: StreamDataset, own: list[str], names: list[str], schema: object, between: tuple[int, int] | None
    ) -> object:
        seen.append((own, between))
        return batches(self, own, names, schema, between)

    monkeypatch.setattr(dataset_module.StreamDataset, "_batches", spy)
    with connect(sensors.store) as store, Query(store) as query:
        for sql in (
            "SELECT avg(celsius) FROM iot.sensors",
            "SELECT celsius FROM iot.sensors WHERE \"at\" >= TIMESTAMPTZ '2026-01-01 00:00:01Z'",
            "SELECT celsius FROM iot.sensors WHERE \"at\" < TIMESTAMPTZ '2026-01-01 00:00:01Z' OR celsius > 3",
        ):
            result = query.run(sql)
            assert result is not None
            assert sum(batch.num_rows for batch in result) in (1, 2)
    assert seen[0] == (["celsius"], None)
    assert seen[1][0] in (["celsius"], ["at", "celsius"])
    assert seen[1][1] == (1_767_225_601_000_000, (1 << 63) - 1)
    assert seen[2][1] is None


@pytest.mark.parametrize(
    ("told", "bounds"),
    [
        ("(at >= 1970-01-01 00:00:01.000000Z)", (1_000_000, (1 << 63) - 1)),
        ("(at > 1970-01-01 00:00:01.000000Z)", (1_000_001, (1 << 63) - 1)),
        ("(at < 1970-01-01 00:00:01.000000Z)", (-(1 << 63), 1_000_000)),
        ("(at <= 1970-01-01 00:00:01.000000Z)", (-(1 << 63), 1_000_001)),
        ("(at == 1970-01-01 00:00:01.000000Z)", (1_000_000, 1_000_001)),
        ("((at >= 1970-01-01 00:00:01.000000Z) and (at < 1970-01-01 00:00:02.000000Z))", (1_000_000, 2_000_000)),
        ("((at > 1970-01-01 00:00:02.000000Z) and (at < 1970-01-01 00:00:01.000000Z))", (2_000_001, 2_000_001)),
        ("((at >= 1970-01-01 00:00:01.000000Z) or (n > 1))", None),
        ("invert((at >= 1970-01-01 00:00:01.000000Z))", None),
        ('((s == "(at >= 1970-01-01 00:00:01.000000Z)"))', None),
        ("(that >= 1970-01-01 00:00:01.000000Z)", None),
        ("(n > 1)", None),
        ("", None),
    ],
)
def test_bounds_of_time_are_taken_only_where_they_surely_hold(told: str, bounds: tuple[int, int] | None) -> None:
    assert time_bounds(told, "at") == bounds


def test_every_scan_of_a_query_sees_the_stream_as_it_was_when_it_began(sensors: Line) -> None:
    with connect(sensors.store) as store:
        streams, name = store.streams, StreamName("iot", "sensors")
        dataset = StreamDataset(store, name, streams.head(name), streams.tail(name))
        store.writer(name).write({"device": "late"}).result()
        assert dataset.scanner(columns=["device"]).to_table().to_pylist() == [{"device": d} for d in ("a", "b", "a")]


def test_compacted_history_gives_the_same_answer(sensors: Line) -> None:
    sql = "SELECT device, sum(celsius) AS s, max(_offset) AS o FROM iot.sensors GROUP BY ALL ORDER BY ALL"
    before = ask(sensors, sql)
    sensors("compact", "--force")
    sensors("write", "iot/sensors", stdin='{"device":"a","celsius":1}\n')
    after = ask(sensors, sql)
    assert before == [{"device": "a", "s": 5.0, "o": 2}, {"device": "b", "s": 2.5, "o": 1}]
    assert after == [{"device": "a", "s": 6.0, "o": 3}, {"device": "b", "s": 2.5, "o": 1}]


def test_a_stream_that_is_not_there_is_named_with_those_called_alike(sensors: Line) -> None:
    told = sensors.refused("query", "SELECT * FROM iot.sensor")
    assert told == "there is no stream or table 'iot.sensor'; did you mean iot.sensors?"
    assert sensors.refused("query", "SELECT * FROM nothing") == (
        "there is no stream or table 'nothing' (a stream is scope.name)"
    )
