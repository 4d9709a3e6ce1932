"""SQL over streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch import connect
from anabranch.errors import InvalidSql
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


def test_a_query_may_be_in_the_sql_of_another_system(sensors: Line) -> None:
    sql = "SELECT device, COUNTIF(celsius > 2) AS n FROM `iot.sensors` GROUP BY 1 ORDER BY 1"
    assert sensors("query", sql, "--dialect", "bigquery").rows == [{"device": "a", "n": 1}, {"device": "b", "n": 1}]
    shown = sensors("query", "translate", "-", "--from", "bigquery", stdin=sql).out
    assert "COUNT(CASE WHEN celsius > 2 THEN 1 END) AS n" in shown
    assert ask(sensors, shown) == sensors("query", shown).rows
    refused = sensors.refused("query", "SELECT\n nothing_known(device) FROM iot.sensors", "--dialect", "trino")
    assert refused.startswith("line 2: the function nothing_known is not translated") and "(character 2)" in refused


def test_what_another_systems_sql_becomes_is_shown_by_the_word_translate_behind_query(
    sensors: Line, tmp_path: Path
) -> None:
    sql = "SELECT device, AVG(celsius) AS celsius FROM sensors GROUP BY device"
    shown = sensors("query", "translate", "--from", "flink", sql, "--scope", "iot").out
    assert "FROM iot.sensors" in shown and "FROM STREAM" not in shown
    (tmp_path / "job.sql").write_text(f"INSERT INTO means {sql}")
    options = ("--scope", "iot", "--file", tmp_path / "job.sql")
    assert (
        "CREATE STREAM iot.means WITH (mode = complete) AS"
        in sensors("query", "translate", "--dialect", "flink", *options).out
    )
    assert "--from" in sensors.refused("query", "translate", sql)
    assert "pass either the statements or --file" in sensors.refused("query", "translate", "--from", "flink")
    # Only as the first word: elsewhere it is a part of a query.
    assert ask(sensors, "SELECT translate('abc', 'b', 'x') AS translate") == [{"translate": "axc"}]


def test_names_may_need_quotes(line: Line) -> None:
    line("write", "my-scope/the.stream", "--create", stdin='{"a":1}\n')
    assert ask(line, 'SELECT * FROM "my-scope/the.stream"') == [{"a": 1}]
    assert ask(line, 'SELECT * FROM "my-scope"."the.stream"') == [{"a": 1}]


def test_streams_join_each_other_and_themselves(sensors: Line) -> None:
    sensors("write", "iot/names", "--create", stdin='{"device":"a","name":"Attic"}\n')
    sql = "SELECT name, sum(celsius) AS c FROM iot.sensors JOIN iot.names USING (device) GROUP BY ALL"
    assert ask(sensors, sql) == [{"name": "Attic", "c": 5.0}]
    assert ask(sensors, "SELECT count(*) AS n FROM iot.sensors x, iot.sensors y") == [{"n": 9}]
    assert ask(
        sensors,
        "WITH q AS (FROM iot.sensors) SELECT count(*) AS n FROM q WHERE device IN (FROM iot.names SELECT device)",
    ) == [{"n": 2}]


def test_a_sum_of_integers_is_a_number_in_every_format(line: Line) -> None:
    line("write", "s/a", "--create", stdin='{"n":1}\n{"n":539}\n')
    sql = "SELECT sum(n) AS total, sum(n)::decimal(10, 2) AS exact FROM s.a"
    assert line("query", sql, "--format", "jsonl").out == '{"total": 540, "exact": "540.00"}\n'
    assert line("query", sql, "--format", "csv").out == '"total","exact"\n540,540.00\n'
    assert line("query", sql, "--format", "table").out.split() == ["total", "exact", "540", "540.00"]
    assert ask(line, "SELECT sum(n) AS none FROM s.a WHERE n > 540") == [{"none": None}]


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
        ("SELEC 1", 'line 1: syntax error at or near "SELEC"; did you mean SELECT?'),
        ("SELECT 1,\n nope FROM iot.sensors", 'Binder Error: Referenced column "nope" not found'),
        ("FROM iot.nope", "unknown stream"),
        ("SELECT 'x'::int FROM iot.sensors", "Conversion Error"),
        ("SELECT at FROM iot.sensors", 'write a column of that name as "at"'),
    ],
)
def test_a_wrong_query_is_one_line(sensors: Line, sql: str, complaint: str) -> None:
    assert complaint in sensors.refused("query", sql)


def test_a_query_is_said_once(sensors: Line, tmp_path: Path) -> None:
    assert "pass either the query or --file" in sensors.refused("query")
    assert "pass either the query or --file" in sensors.refused("query", "SELECT 1", "--file", "x.sql")
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
    with connect(sensors.store, create=True) as store, Query(store) as query:
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


def test_a_time_of_day_is_no_text_of_json_in_a_table(sensors: Line) -> None:
    sql = "SELECT TIME '12:00:00.5' AS a, [TIME '12:00:00'] AS b, NULL::TIME AS c"
    assert sensors("query", sql, "--format", "table").out.splitlines()[1].split() == [
        "12:00:00.500000",
        '["12:00:00"]',
        "-",
    ]


def test_a_filter_on_a_column_whose_name_ends_like_one_on_the_time_leaves_out_nothing(line: Line) -> None:
    rows = '{"t": "2026-01-01T00:00:00Z", "x (t": "2027-01-01T00:00:00Z"}\n'
    line("write", "s/a", "--create", "--time", "t", stdin=rows)
    sql = """SELECT count(*) AS n FROM s.a WHERE "x (t" >= '2027-01-01 00:00:00Z'::TIMESTAMPTZ"""
    assert ask(line, sql) == [{"n": 1}]


def test_every_scan_of_a_query_sees_the_stream_as_it_was_when_it_began(sensors: Line) -> None:
    with connect(sensors.store, create=True) as store:
        name = StreamName("iot", "sensors")
        dataset = StreamDataset(store, name, store.cuts.head(name), store.cuts.tail(name))
        store.writer(name).write({"device": "late"}).result()
        assert dataset.scanner(columns=["device"]).to_reader().read_all().to_pylist() == [
            {"device": d} for d in ("a", "b", "a")
        ]


def test_compacted_history_gives_the_same_answer(sensors: Line) -> None:
    sql = "SELECT device, sum(celsius) AS s, max(_offset) AS o FROM iot.sensors GROUP BY ALL ORDER BY ALL"
    before = ask(sensors, sql)
    sensors("compact", "--force")
    sensors("write", "iot/sensors", "--create", stdin='{"device":"a","celsius":1}\n')
    after = ask(sensors, sql)
    assert before == [{"device": "a", "s": 5.0, "o": 2}, {"device": "b", "s": 2.5, "o": 1}]
    assert after == [{"device": "a", "s": 6.0, "o": 3}, {"device": "b", "s": 2.5, "o": 1}]


def test_a_stream_that_is_not_there_is_named_with_those_called_alike(sensors: Line) -> None:
    told = sensors.refused("query", "SELECT * FROM iot.sensor")
    assert told == "unknown stream or table 'iot.sensor'; did you mean iot.sensors?"
    assert sensors.refused("query", "SELECT * FROM nothing") == (
        "unknown stream or table 'nothing'; a stream is scope.name, and SHOW TABLES lists them"
    )


def test_a_query_can_not_change_a_stream(sensors: Line) -> None:
    for sql in (
        "DROP TABLE iot.sensors",
        "DELETE FROM iot.sensors",
        "INSERT INTO iot.sensors VALUES ('a', NULL, 1)",
        "UPDATE iot.sensors SET celsius = 1",
        "ALTER TABLE iot.sensors ADD COLUMN x INTEGER",
    ):
        assert sensors.refused("query", sql).startswith("a query can't change a stream; use the verbs: anabranch write")
    assert ask(sensors, "SELECT count(*) AS n FROM iot.sensors") == [{"n": 3}]


def test_show_tables_lists_the_streams(sensors: Line) -> None:
    for sql in ("SHOW TABLES", "show all tables;\n"):
        assert {row["name"] for row in sensors("query", sql).rows} == {"iot.raw", "iot.sensors"}


def test_a_misspelt_query_is_reported_in_one_line(sensors: Line) -> None:
    assert sensors.refused("query", "SELEC 1") == 'line 1: syntax error at or near "SELEC"; did you mean SELECT?'
    assert sensors.refused("query", " ;\n") == "the query is empty"
    assert sensors.refused("query", "FROM iot.sensor") == (
        "unknown stream or table 'iot.sensor'; did you mean iot.sensors?"
    )
    sensors("rename", "iot/sensors", "iot/meters")
    assert sensors.refused("query", "FROM iot.sensors") == "stream 'iot/sensors' was renamed to 'iot/meters'"


def test_files_are_used_only_where_that_is_allowed(sensors: Line, tmp_path: Path) -> None:
    devices, out = tmp_path / "devices.csv", tmp_path / "out.csv"
    devices.write_text("device,room\na,attic\n")
    join = f"SELECT DISTINCT room FROM iot.sensors JOIN read_csv('{devices}') USING (device)"
    for sql in (join, f"COPY iot.sensors TO '{out}'", f"ATTACH '{out}'", "INSTALL httpfs", "LOAD httpfs"):
        assert "pass --allow-files" in sensors.refused("query", sql)
    assert sensors.refused("query", "SET enable_external_access = true").startswith(
        "SET is refused: a query can't use files"
    )
    assert not out.exists()
    assert sensors("query", "--allow-files", join).rows == [{"room": "attic"}]
    sensors("query", "--allow-files", f"COPY iot.sensors TO '{out}'")
    assert out.read_text().count("\n") == 4


def test_a_query_is_stopped_where_its_limits_are(sensors: Line) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range + random() < 0"
    assert "stopped after 0.2s, the time it may take" in sensors.refused("query", endless, "--timeout", "200ms")
    sort = "SELECT list(i) FROM range(1000000000) t(i)"
    assert "needs more memory than it may use" in sensors.refused("query", sort, "--memory", "32MiB")
    assert "is not a duration" in sensors.refused("query", "SELECT 1", "--timeout", "soon")
    assert "is not a size" in sensors.refused("query", "SELECT 1", "--memory", "much")


def test_no_file_of_the_working_directory_is_used_without_permission(
    sensors: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB allows access to its temporary directory always, and that is .tmp unless it is set."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "mine.txt").write_text("private")
    for sql in ("SELECT * FROM read_text('.tmp/mine.txt')", "COPY (SELECT 1) TO '.tmp/new.csv'"):
        assert "--allow-files" in sensors("query", sql, code=2).err
    assert [each.name for each in (tmp_path / ".tmp").iterdir()] == ["mine.txt"]


def test_names_that_differ_only_in_case_are_refused_together(line: Line) -> None:
    line("write", "s/Event", "--create", stdin='{"a":1}\n')
    line("write", "s/event", "--create", stdin='{"a":2}\n')
    line("write", "s/twins", "--create", stdin='{"b":1,"B":2}\n')
    with connect(line.store) as store, Query(store) as query:
        for name, value in (("Event", 1), ("event", 2), ("Event", 1), ("event", 2)):
            result = query.run(f"SELECT a FROM s.{name}")
            assert result is not None and [row for batch in result for row in batch.to_pylist()] == [{"a": value}]
        for sql in ('SELECT * FROM "s/Event" x, "s/event" y', 'SELECT "B" FROM s.twins'):
            with pytest.raises(InvalidSql, match="differ only in case"):
                query.run(sql)


@pytest.mark.parametrize("scope", ["pg_catalog", "information_schema", "temp", "system"])
def test_a_scope_may_be_called_as_a_schema_of_the_database(line: Line, scope: str) -> None:
    line("write", f"{scope}/tables", "--create", stdin='{"a":1}\n')
    assert ask(line, f'SELECT * FROM "{scope}/tables"') == [{"a": 1}]
    assert {"name": f'"{scope}/tables"'} in ask(line, "SHOW TABLES")
    assert ask(line, "SELECT count(*) > 0 AS some FROM information_schema.schemata") == [{"some": True}]


def test_every_query_sees_the_streams_as_of_its_start(sensors: Line) -> None:
    """Also those that it reaches through a view of an earlier query, or names in another case."""

    def count(query: Query, source: str) -> object:
        result = query.run(f"SELECT count(*) AS n FROM {source}")
        assert result is not None
        return [row["n"] for batch in result for row in batch.to_pylist()]

    with connect(sensors.store) as store, Query(store) as query:
        query.run("CREATE VIEW mine AS SELECT * FROM iot.sensors")
        assert count(query, "mine") == [3]
        sensors("write", "iot/sensors", stdin='{"device":"c","celsius":1.5}\n')
        assert count(query, "mine") == count(query, "IOT.Sensors") == [4]
