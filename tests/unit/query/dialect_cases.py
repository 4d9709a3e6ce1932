"""Statements of other systems, and what they mean here."""

from __future__ import annotations

# Dialect, statement, pipeline. Names without a scope are of `iot`; the column of event times is `at`.
PIPELINES = [
    (
        "risingwave",
        "CREATE MATERIALIZED VIEW m AS SELECT EXTRACT(MINUTE FROM at)::int AS n, EXTRACT(SECOND FROM at)::int AS v FROM sensors",
        """CREATE STREAM iot.m AS SELECT CAST(EXTRACT(MINUTE FROM at) AS INT) AS n,
           CASE WHEN typeof(EXTRACT(SECOND FROM at)) IN ('float', 'double')
             THEN CAST(bround(TRY_CAST(EXTRACT(SECOND FROM at) AS DOUBLE)) AS INT)
           WHEN typeof(EXTRACT(SECOND FROM at)) LIKE 'decimal%'
             THEN CAST(round(TRY_CAST(EXTRACT(SECOND FROM at) AS DECIMAL(38, 18))) AS INT)
           ELSE CAST(EXTRACT(SECOND FROM at) AS INT) END AS v FROM STREAM iot.sensors;""",
    ),
    (
        "flink",
        r"INSERT INTO m SELECT device FROM sensors WHERE device LIKE '50\%' OR NOT device LIKE note OR device LIKE '5!%' ESCAPE '!'",
        r"CREATE STREAM iot.m AS SELECT device FROM STREAM iot.sensors WHERE device LIKE '50\\\\%' OR NOT device LIKE replace(note, '\\', '\\\\') OR device LIKE '5!%' ESCAPE '!';",
    ),
    (
        "risingwave",
        r"CREATE MATERIALIZED VIEW m AS SELECT device FROM sensors WHERE device LIKE '50\%' OR NOT device LIKE note",
        r"CREATE STREAM iot.m AS SELECT device FROM STREAM iot.sensors WHERE device LIKE '50\\%' OR NOT device LIKE note;",
    ),
    (
        "flink",
        """CREATE TABLE sensors (device STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)
             WITH ('connector' = 'kafka');
           CREATE TABLE means (closed TIMESTAMP(3), device STRING, celsius DOUBLE) WITH ('connector' = 'print');
           INSERT INTO means
           SELECT window_start, window_end AS closed, device, AVG(celsius) AS celsius
           FROM TABLE(TUMBLE(TABLE sensors, DESCRIPTOR(at), INTERVAL '10' SECOND))
           WHERE celsius > 3
           GROUP BY window_start, window_end, device;""",
        """CREATE STREAM iot.means WITH (time = closed, watermark = '5 seconds') AS
           SELECT window.start AS window_start, window.end AS closed, device, AVG(celsius) AS celsius
           FROM STREAM iot.sensors WHERE celsius > 3 GROUP BY window(at, '10 seconds'), device;""",
    ),
    (
        "flink",
        """INSERT INTO m SELECT window_end, COUNT(*) AS n
           FROM TABLE(HOP(TABLE sensors, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '1' MINUTE))
           GROUP BY window_start, window_end HAVING COUNT(*) > 2""",
        """CREATE STREAM iot.m WITH (time = window_end) AS SELECT window.end AS window_end, COUNT(*) AS n
           FROM STREAM iot.sensors GROUP BY window(at, '1 minute', '5 seconds') HAVING COUNT(*) > 2;""",
    ),
    (
        "flink",
        """INSERT INTO m SELECT device, TUMBLE_END(at, INTERVAL '10' SECOND) AS closed, COUNT(*) AS n
           FROM sensors GROUP BY TUMBLE(at, INTERVAL '10' SECOND), device""",
        """CREATE STREAM iot.m WITH (time = closed) AS SELECT device, window.end AS closed, COUNT(*) AS n
           FROM STREAM iot.sensors GROUP BY window(at, '10 seconds'), device;""",
    ),
    (
        "flink",
        """INSERT INTO m SELECT SESSION_START(at, INTERVAL '1' HOUR) AS begun, device FROM sensors
           GROUP BY SESSION(at, INTERVAL '1' HOUR), device""",
        """CREATE STREAM iot.m WITH (time = begun) AS SELECT session_window.start AS begun, device
           FROM STREAM iot.sensors GROUP BY session_window(at, '1 hour'), device;""",
    ),
    (
        "ksqldb",
        """CREATE TABLE counts WITH (KAFKA_TOPIC = 'counts') AS
           SELECT device, COUNT(*) AS n, WINDOWEND AS closed FROM sensors
           WINDOW TUMBLING (SIZE 10 SECONDS, RETENTION 1 DAYS, GRACE PERIOD 1 MINUTE)
           WHERE celsius > 3 GROUP BY device EMIT CHANGES;""",
        """CREATE STREAM iot.counts WITH (time = closed) AS SELECT device, COUNT(*) AS n, window.end AS closed
           FROM STREAM iot.sensors WHERE celsius > 3 GROUP BY window(at, '10 seconds'), device;""",
    ),
    (
        "ksqldb",
        "CREATE TABLE c AS SELECT device, COUNT(*) AS n FROM sensors WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS) GROUP BY device EMIT CHANGES",
        "CREATE STREAM iot.c AS SELECT device, COUNT(*) AS n FROM STREAM iot.sensors GROUP BY window(at, '1 minute', '10 seconds'), device;",
    ),
    (
        "ksqldb",
        "CREATE TABLE c AS SELECT device, COUNT(*) AS n FROM sensors WINDOW SESSION (60 SECONDS) GROUP BY device EMIT FINAL",
        "CREATE STREAM iot.c AS SELECT device, COUNT(*) AS n FROM STREAM iot.sensors GROUP BY session_window(at, '1 minute'), device;",
    ),
    (
        "ksqldb",
        "CREATE TABLE c AS SELECT device, WINDOWEND AS closed FROM sensors WINDOW SESSION (60 SECONDS) GROUP BY device EMIT FINAL",
        "CREATE STREAM iot.c WITH (time = closed) AS SELECT device, session_window.end - INTERVAL '1 minute' AS closed FROM STREAM iot.sensors GROUP BY session_window(at, '1 minute'), device;",
    ),
    (
        "flink",
        """INSERT INTO c SELECT window_start, device, kind, COUNT(*) AS n
           FROM TABLE(SESSION(TABLE sensors PARTITION BY device, kind, DESCRIPTOR(at), INTERVAL '1' MINUTE))
           GROUP BY window_start, window_end, kind, device""",
        """CREATE STREAM iot.c WITH (time = window_start) AS SELECT session_window.start AS window_start, device, kind, COUNT(*) AS n
           FROM STREAM iot.sensors GROUP BY session_window(at, '1 minute'), kind, device;""",
    ),
    (
        "materialize",
        "CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT celsius::int AS c FROM sensors",
        """CREATE STREAM iot.v AS SELECT CASE WHEN typeof(celsius) IN ('float', 'double') THEN CAST(bround(TRY_CAST(celsius AS DOUBLE)) AS INT)
           WHEN typeof(celsius) LIKE 'decimal%' THEN CAST(round(TRY_CAST(celsius AS DECIMAL(38, 18))) AS INT) ELSE CAST(celsius AS INT) END AS c
           FROM STREAM iot.sensors;""",
    ),
    (
        "flink",
        "INSERT INTO v SELECT CAST(celsius AS INT) AS c, 'it''s \\n' AS t FROM sensors",
        """CREATE STREAM iot.v AS SELECT CASE WHEN typeof(celsius) = 'string'
           THEN CAST(regexp_replace(CAST(celsius AS STRING), '^( *[+-]?[0-9]+)[.][0-9]* *$', '$1') AS INT) ELSE CAST(celsius AS INT) END AS c,
           'it\\'s \\\\n' AS t FROM STREAM iot.sensors;""",
    ),
    (
        "ksqldb",
        "CREATE STREAM hot AS SELECT device, UCASE(note) AS note FROM sensors WHERE celsius > 30 EMIT CHANGES;",
        "CREATE STREAM iot.hot AS SELECT device, UPPER(note) AS note FROM STREAM iot.sensors WHERE celsius > 30;",
    ),
    (
        "ksqldb",
        "CREATE TABLE counts AS SELECT device, COUNT(*) AS n FROM sensors GROUP BY device EMIT CHANGES;",
        "CREATE STREAM iot.counts WITH (mode = complete) AS SELECT device, COUNT(*) AS n FROM STREAM iot.sensors GROUP BY device;",
    ),
    (
        "materialize",
        "CREATE MATERIALIZED VIEW tops AS SELECT device, max(celsius) AS c FROM sensors GROUP BY device ORDER BY c DESC LIMIT 3",
        "CREATE STREAM iot.tops WITH (mode = complete) AS SELECT device, MAX(celsius) AS c FROM STREAM iot.sensors GROUP BY device ORDER BY c DESC NULLS FIRST LIMIT 3;",
    ),
    (
        "flink",
        "INSERT INTO total SELECT SUM(celsius) AS c FROM sensors",
        "CREATE STREAM iot.total WITH (mode = complete) AS SELECT SUM(celsius) AS c FROM STREAM iot.sensors;",
    ),
    (
        "azure",
        "SELECT device, System.Timestamp() AS closed, AVG(celsius) AS c INTO out FROM sensors TIMESTAMP BY at GROUP BY device, TumblingWindow(second, 10)",
        "CREATE STREAM iot.out WITH (time = closed) AS SELECT device, window.end - INTERVAL 1 MICROSECOND AS closed, AVG(celsius) AS c FROM STREAM iot.sensors GROUP BY window(at, '10 seconds', '10 seconds', '1 microsecond'), device;",
    ),
    (
        "azure",
        "SELECT COUNT(*) AS n INTO out FROM sensors TIMESTAMP BY at GROUP BY HoppingWindow(second, 10, 5)",
        "CREATE STREAM iot.out AS SELECT COUNT(*) AS n FROM STREAM iot.sensors GROUP BY window(at, '10 seconds', '5 seconds', '1 microsecond');",
    ),
    (
        "azure",
        "SELECT device, System.Timestamp AS t, CAST(celsius AS float) AS c INTO out FROM sensors TIMESTAMP BY at WHERE note LIKE 'a%'",
        "CREATE STREAM iot.out AS SELECT device, at AS t, CAST(celsius AS DOUBLE) AS c FROM STREAM iot.sensors WHERE note LIKE 'a%';",
    ),
    (
        "azure",
        "SELECT [device], COUNT(*) AS n INTO out FROM [sensors] TIMESTAMP BY at GROUP BY SessionWindow(minute, 5), [device]",
        "CREATE STREAM iot.out AS SELECT `device`, COUNT(*) AS n FROM STREAM iot.sensors GROUP BY session_window(at, '5 minutes'), `device`;",
    ),
    (
        "risingwave",
        """CREATE SOURCE sensors (device VARCHAR, at TIMESTAMPTZ, WATERMARK FOR at AS at - INTERVAL '3 seconds') WITH (connector = 'x');
           CREATE MATERIALIZED VIEW tops AS SELECT window_start, device, max(celsius) AS top
           FROM TUMBLE(sensors, at, INTERVAL '10 seconds') GROUP BY window_start, device EMIT ON WINDOW CLOSE""",
        """CREATE STREAM iot.tops WITH (time = window_start, watermark = '3 seconds') AS
           SELECT window.start AS window_start, device, MAX(celsius) AS top FROM STREAM iot.sensors GROUP BY window(at, '10 seconds'), device;""",
    ),
    (
        "materialize",
        "CREATE MATERIALIZED VIEW hot AS SELECT device, celsius FROM sensors WHERE celsius > 30",
        "CREATE STREAM iot.hot AS SELECT device, celsius FROM STREAM iot.sensors WHERE celsius > 30;",
    ),
    (
        "snowflake",
        "CREATE OR REPLACE DYNAMIC TABLE hot TARGET_LAG = '1 minute' WAREHOUSE = w AS SELECT s.device, IFF(s.celsius > 30, 'hot', 'warm') AS k FROM sensors AS s JOIN devices AS d ON s.device = d.device",
        "CREATE STREAM iot.hot AS SELECT s.device, IF(s.celsius > 30, 'hot', 'warm') AS k FROM STREAM iot.sensors AS s JOIN iot.devices AS d ON s.device = d.device;",
    ),
    (
        "risingwave",
        """CREATE MATERIALIZED VIEW m AS SELECT window_end, percentile_cont(0.9) WITHIN GROUP (ORDER BY celsius) AS most
           FROM TUMBLE(sensors, at, INTERVAL '1 minute') WHERE at > TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '1 day'
           GROUP BY window_start, window_end""",
        """CREATE STREAM iot.m WITH (time = window_end) AS SELECT window.end AS window_end, percentile(CAST(celsius AS DOUBLE), 0.9) AS most
           FROM STREAM iot.sensors WHERE at > CAST('2026-01-01 00:00:00' AS TIMESTAMP) + INTERVAL '1' DAY GROUP BY window(at, '1 minute');""",
    ),
    (
        "azure",
        "SELECT COUNT(*) AS n INTO out FROM sensors TIMESTAMP BY [the time] WHERE System.Timestamp() > begun GROUP BY TumblingWindow(second, 10)",
        "CREATE STREAM iot.out AS SELECT COUNT(*) AS n FROM STREAM iot.sensors WHERE `the time` > begun GROUP BY window(`the time`, '10 seconds', '10 seconds', '1 microsecond');",
    ),
    (
        "flink",
        "INSERT INTO c SELECT COUNT(*) AS n FROM sensors GROUP BY TUMBLE(`the time`, INTERVAL '10' SECOND)",
        "CREATE STREAM iot.c AS SELECT COUNT(*) AS n FROM STREAM iot.sensors GROUP BY window(`the time`, '10 seconds');",
    ),
    (
        "ksqldb",
        "CREATE TABLE c AS SELECT d, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY d EMIT FINAL",
        "CREATE STREAM iot.c AS SELECT d, COUNT(*) AS n FROM STREAM iot.s GROUP BY window(at, '1 minute'), d;",
    ),
    (
        "risingwave",
        """CREATE MATERIALIZED VIEW c AS SELECT window_start, count(*) AS n FROM TUMBLE(s, at, INTERVAL '1 minute')
           WHERE extract(HOUR FROM date_trunc('hour', at)) = 3 GROUP BY window_start HAVING window_start > begun""",
        """CREATE STREAM iot.c WITH (time = window_start) AS SELECT window.start AS window_start, COUNT(*) AS n FROM STREAM iot.s
           WHERE EXTRACT(HOUR FROM DATE_TRUNC('HOUR', at)) = 3 GROUP BY window(at, '1 minute') HAVING window.start > begun;""",
    ),
    (
        "flink",
        """CREATE TABLE s (a STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '0' SECOND);
           INSERT INTO c SELECT a FROM s""",
        "CREATE STREAM iot.c WITH (watermark = '0 seconds') AS SELECT a FROM STREAM iot.s;",
    ),
]

# Dialect, query, and one of DuckDB that has the same result.
QUERIES = [
    (
        "flink",
        "SELECT GREATEST(FLOOR(at TO DAY), at - INTERVAL '1' DAY) AS v FROM sensors",
        """SELECT greatest(date_trunc('day', "at"), "at" - INTERVAL 1 DAY) FROM iot.sensors""",
    ),
    (
        "azure",
        "SELECT (celsius / (CAST(celsius AS float) + 1)) / 2 AS v FROM sensors",
        "SELECT celsius / (celsius::DOUBLE + 1) / 2 FROM iot.sensors",
    ),
    (
        "flink",
        "SELECT `device`, COUNT(*) AS n FROM sensors GROUP BY `device`",
        "SELECT device, count(*) FROM iot.sensors GROUP BY 1",
    ),
    (
        "flink",
        """SELECT window_start, window_end, SUM(celsius) AS s
           FROM TABLE(TUMBLE(TABLE sensors, DESCRIPTOR(at), INTERVAL '7' SECOND)) GROUP BY window_start, window_end""",
        """SELECT make_timestamptz(epoch_us("at") // 7000000 * 7000000), make_timestamptz(epoch_us("at") // 7000000 * 7000000 + 7000000),
           sum(celsius) FROM iot.sensors GROUP BY ALL""",
    ),
    (
        "risingwave",
        "SELECT window_start, device, count(*) FROM TUMBLE(sensors, at, INTERVAL '1 minute') WHERE celsius > 3 GROUP BY window_start, device",
        """SELECT date_trunc('minute', "at"), device, count(*) FROM iot.sensors WHERE celsius > 3 GROUP BY ALL""",
    ),
    (
        "azure",
        "SELECT System.Timestamp() AS t, AVG(celsius) AS c FROM sensors TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1)",
        """SELECT date_trunc('minute', "at") + INTERVAL 1 MINUTE, avg(celsius) FROM iot.sensors GROUP BY ALL""",
    ),
    (
        "azure",
        "SELECT System.Timestamp() AS t, COUNT(*) AS n FROM marks TIMESTAMP BY at GROUP BY TumblingWindow(ss, 10)",
        "VALUES (make_timestamptz(1700000000000000), 2), (make_timestamptz(1700000010000000), 2)",
    ),
    (
        "azure",
        "SELECT COUNT(*) AS n FROM sensors TIMESTAMP BY at WHERE System.Timestamp() <= '2023-11-14 22:14:00' GROUP BY TumblingWindow(day, 1)",
        """SELECT count(*) FROM iot.sensors WHERE "at" <= '2023-11-14 22:14:00'""",
    ),
    (
        "azure",
        "SELECT COUNT(*) AS n FROM marked TIMESTAMP BY [the time] GROUP BY TumblingWindow(ss, 10)",
        "VALUES (2), (2)",
    ),
    (
        "flink",
        "SELECT COUNT(*) AS n FROM marked GROUP BY TUMBLE(`the time`, INTERVAL '10' SECOND)",
        "VALUES (1), (2), (1)",
    ),
    (
        "risingwave",
        "SELECT extract(HOUR FROM date_trunc('day', at)), device IS DISTINCT FROM lower(note), trim(LEADING 'd' FROM lower(device)) FROM sensors",
        "SELECT 0, true, ltrim(device, 'd') FROM iot.sensors",
    ),
    (
        "azure",
        "SELECT CAST(half AS bigint), CAST(tenths AS bigint), CAST(whole AS bigint), CAST(note AS bigint) FROM marks",
        "VALUES (-2, -2, 1, 12), (-1, -1, 2, 12), (1, 1, 3, 12), (2, 2, 4, 12)",
    ),
    (
        "flink",
        "SELECT CAST(half AS INT), CAST(tenths AS BIGINT), CAST(COUNT(*) AS INT) FROM marks GROUP BY 1, 2",
        "VALUES (-2, -2, 1), (-1, -1, 1), (1, 1, 1), (2, 2, 1)",
    ),
    (
        "bigquery",
        "SELECT CAST(half AS INT64), CAST(tenths AS INT64), SAFE_CAST(note AS INT64) FROM marks",
        "VALUES (-3, -3, 12), (-2, -2, 12), (2, 2, 12), (3, 3, 12)",
    ),
    (
        "risingwave",
        "SELECT half::int, tenths::int FROM marks",
        "VALUES (-2, -3), (-2, -2), (2, 2), (2, 3)",
    ),
    (
        "flink",
        "SELECT device, celsius / 2.0, 'it''s \\n' FROM sensors",
        "SELECT device, celsius / 2.0, 'it''s \\n' FROM iot.sensors",
    ),
    (
        "ksqldb",
        """SELECT "device", 'it''s' FROM sensors EMIT CHANGES""",
        "SELECT device, 'it''s' FROM iot.sensors",
    ),
    (
        "flink",
        "SELECT FLOOR(at TO MINUTE), FLOOR(celsius) FROM sensors",
        """SELECT date_trunc('minute', "at"), floor(celsius) FROM iot.sensors""",
    ),
    (
        "azure",
        "SELECT TOP 2 device, LEN(note) AS n FROM sensors ORDER BY at",
        """SELECT device, length(note) FROM iot.sensors ORDER BY "at" LIMIT 2""",
    ),
    (
        "materialize",
        "SELECT device, stddev(celsius), celsius::int FROM sensors GROUP BY 1, 3",
        "SELECT device, stddev_samp(celsius), celsius::int FROM iot.sensors GROUP BY 1, 3",
    ),
    (
        "snowflake",
        "SELECT device, IFF(celsius > 3, 'hot', 'cold') AS k, NVL(note, '-'), DATE_TRUNC('hour', at) FROM sensors QUALIFY ROW_NUMBER() OVER (PARTITION BY device ORDER BY at) = 1",
        """SELECT device, CASE WHEN celsius > 3 THEN 'hot' ELSE 'cold' END, coalesce(note, '-'), date_trunc('hour', "at")
           FROM iot.sensors QUALIFY row_number() OVER (PARTITION BY device ORDER BY "at") = 1""",
    ),
    (
        "bigquery",
        "SELECT device, COUNTIF(celsius > 3) AS n, SAFE_CAST(note AS INT64), TIMESTAMP_TRUNC(at, MINUTE) FROM iot.sensors WHERE note LIKE '%1%' GROUP BY 1, 3, 4",
        """SELECT device, count(*) FILTER (celsius > 3), try_cast(note AS BIGINT), date_trunc('minute', "at")
           FROM iot.sensors WHERE note LIKE '%1%' GROUP BY 1, 3, 4""",
    ),
    *(
        (
            dialect,
            f"SELECT device, {function}(celsius > 3) AS n, SUM(CASE WHEN celsius > 3 THEN 1 ELSE 0 END) AS m FROM sensors GROUP BY device",
            "SELECT device, count(*) FILTER (celsius > 3), count(*) FILTER (celsius > 3) FROM iot.sensors GROUP BY 1",
        )
        for dialect, function in (
            *(("bigquery", "COUNTIF"), ("snowflake", "COUNT_IF"), ("trino", "count_if"), ("ksqldb", "COUNTIF")),
        )
    ),
    (
        "bigquery",
        "SELECT device, celsius / 2, STARTS_WITH(note, '1') FROM sensors",
        "SELECT device, celsius / 2, starts_with(note, '1') FROM iot.sensors",
    ),
    (
        "trino",
        "WITH hot AS (SELECT * FROM sensors WHERE celsius > 3) SELECT device, date_trunc('minute', at), try_cast(note AS bigint), max(celsius) FROM hot GROUP BY 1, 2, 3",
        """SELECT device, date_trunc('minute', "at"), try_cast(note AS BIGINT), max(celsius) FROM iot.sensors WHERE celsius > 3 GROUP BY 1, 2, 3""",
    ),
    (
        "trino",
        "SELECT concat(device, '-', note), extract(MINUTE FROM at), round(celsius) FROM sensors",
        """SELECT device || '-' || note, minute("at"), round(celsius) FROM iot.sensors""",
    ),
    *(
        (
            dialect,
            rf"SELECT device LIKE 'd{text}_', NOT device LIKE concat('d', '{text}', '%'), device LIKE 'd!_' ESCAPE '!', device LIKE 'd%' FROM sensors",
            rf"SELECT device LIKE 'd\_' {escape}, NOT device LIKE 'd\%' {escape}, device = 'd_', device LIKE 'd%' FROM iot.sensors",
        )
        for dialect, text, escape in (
            ("trino", "\\", ""),
            ("flink", "\\", ""),
            ("snowflake", r"\\", ""),
            ("bigquery", r"\\", r"ESCAPE '\'"),
            ("risingwave", "\\", r"ESCAPE '\'"),
            ("materialize", "\\", r"ESCAPE '\'"),
        )
    ),
    (
        "trino",
        "SELECT 10 / 3e0, avg(celsius) / 3, sum(CAST(note AS double)) / count(*) FROM sensors",
        "SELECT 10 / 3.0, avg(celsius) / 3, sum(CAST(note AS DOUBLE)) / count(*) FROM iot.sensors",
    ),
    (
        "ksqldb",
        "SELECT device, LCASE(note) AS note FROM sensors WHERE celsius BETWEEN 3 AND 8 EMIT CHANGES",
        "SELECT device, lower(note) FROM iot.sensors WHERE celsius BETWEEN 3 AND 8",
    ),
]

# Dialect, statement, line, character, part of the message.
REFUSED = [
    ("flink", "SELECT a,\n FLOOR(at TO WEEK) FROM s", 2, None, "FLOOR to week is not translated; use one of day, hour"),
    ("flink", "SELECT FLOOR(at TO DECADE) FROM s", 1, None, "FLOOR to decade is not translated"),
    (
        "flink",
        "INSERT INTO m SELECT COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(at), SIZE => INTERVAL '1' MINUTE)) GROUP BY window_start",
        1,
        49,
        "named arguments are not supported; pass them by position",
    ),
    (
        "flink",
        "INSERT INTO m SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE))\nWHERE window_start > b GROUP BY window_start",
        2,
        7,
        "window_start in WHERE is not supported in a pipeline; write it in HAVING",
    ),
    (
        "azure",
        "SELECT COUNT(*) INTO o FROM s TIMESTAMP BY DATEADD(second, n, '1970-01-01') GROUP BY TumblingWindow(second, 10)",
        1,
        44,
        "TIMESTAMP BY an expression is not translated; name a column",
    ),
    (
        "azure",
        "SELECT COUNT(*) INTO o FROM s TIMESTAMP BY at GROUP BY TumblingWindow(second, 7)",
        1,
        56,
        "is not documented; write another length",
    ),
    (
        "azure",
        "SELECT COUNT(*) INTO o FROM s TIMESTAMP BY at GROUP BY HoppingWindow(hour, 10, 5)",
        1,
        56,
        "is not documented; write another length",
    ),
    ("risingwave", "SELECT * FROM (SELECT a FROM f(s, at)) AS x", 1, 30, "a function f as a table is not supported"),
    (
        "flink",
        "INSERT INTO m\nSELECT window_end FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_end",
        2,
        30,
        "CUMULATE are not supported; use TUMBLE, HOP or SESSION",
    ),
    (
        "flink",
        "SELECT a, w FROM s,\n LATERAL TABLE(f(a)) AS T(w)",
        2,
        16,
        "LATERAL TABLE(f(…)) is not translated; write a statement in the store's own SQL, with explode(…)",
    ),
    (
        "flink",
        "INSERT INTO m SELECT a, w FROM s LEFT JOIN LATERAL TABLE(Split(a)) AS T(w) ON TRUE",
        1,
        58,
        "LATERAL TABLE(Split(…)) is not translated",
    ),
    ("flink", "SELECT a FROM TABLE(f(1))", 1, 21, "the function f as a table is not translated; write a statement in"),
    (
        "flink",
        "SELECT w FROM s CROSS JOIN UNNEST(a) AS T(w)",
        1,
        None,
        "the function unnest is not translated; write a",
    ),
    ("risingwave", "SELECT unnest(a) FROM s", 1, 8, "the function unnest is not translated; write a statement in"),
    (
        "snowflake",
        "SELECT a FROM s, LATERAL FLATTEN(input => s.a) f",
        1,
        None,
        "a function as a table is not translated",
    ),
    ("azure", "SELECT a FROM s CROSS APPLY GetArrayElements(s.a) AS w", 1, None, "with explode(…) in a pipeline"),
    ("flink", "SELECT a FROM s, LATERAL (SELECT b FROM u WHERE u.a = s.a) AS t", 1, None, "LATERAL is not translated"),
    ("flink", "SELECT device,\n  JSON_QUERY(note, '$.a') FROM s", 2, 3, "is not translated"),
    (
        "flink",
        "INSERT INTO m SELECT TUMBLE_END(at, INTERVAL '1' MINUTE) AS c,\n COUNT(DISTINCT d) FROM s GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)",
        2,
        2,
        "use approx_distinct to count them",
    ),
    ("risingwave", "CREATE MATERIALIZED VIEW m AS SELECT d, at FROM s ORDER BY d", 1, 60, "ORDER BY is not supported"),
    (
        "materialize",
        "CREATE MATERIALIZED VIEW m AS SELECT max(n) AS most\nFROM (SELECT d, count(*) AS n FROM s GROUP BY d) AS x",
        2,
        17,
        "an aggregate over a subquery with aggregates",
    ),
    (
        "flink",
        "INSERT INTO m WITH x AS (SELECT d, COUNT(*) AS n FROM s GROUP BY d) SELECT d, MAX(n) AS n FROM x GROUP BY d",
        1,
        36,
        "write the subquery as a statement of its own",
    ),
    ("flink", "SELECT * FROM s JOIN d FOR SYSTEM_TIME AS OF s.at ON s.a = d.a", 1, 48, "SYSTEM_TIME"),
    (
        "flink",
        "INSERT INTO m SELECT COUNT(*) FROM s GROUP BY TUMBLE(at, INTERVAL '1' MONTH)",
        1,
        47,
        "expected TUMBLE(column, INTERVAL …)",
    ),
    (
        "flink",
        "INSERT INTO m SELECT COUNT(*) FROM s GROUP BY TUMBLE(at, INTERVAL '²' SECOND)",
        1,
        47,
        "expected TUMBLE(column, INTERVAL …)",
    ),
    (
        "azure",
        "SELECT COUNT(*) INTO o FROM s TIMESTAMP BY at GROUP BY TumblingWindow(second, ²)",
        1,
        56,
        "expected TumblingWindow(second, 10)",
    ),
    (
        "flink",
        "SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' MONTH))",
        1,
        53,
        "months have no fixed length",
    ),
    ("flink", "INSERT INTO m (a) SELECT a FROM s", 1, 15, "name the columns in SELECT"),
    (
        "flink",
        "INSERT INTO m SELECT d, COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY d",
        1,
        1,
        "a window must be in GROUP BY",
    ),
    (
        "flink",
        "INSERT INTO m SELECT d, COUNT(*) FROM TABLE(SESSION(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY d, window_start, window_end",
        1,
        1,
        "write PARTITION BY with the same columns",
    ),
    (
        "flink",
        "INSERT INTO m SELECT window_time FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_time",
        1,
        22,
        "use window_end",
    ),
    (
        "flink",
        "INSERT INTO m SELECT COUNT(*) FROM TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE) GROUP BY window_start",
        1,
        36,
        "write TABLE(TUMBLE(…))",
    ),
    ("flink", "SELECT a / b FROM s", 1, 8, "write a / 2.0"),
    ("trino", "SELECT a,\n7 / count(*) FROM s", 2, 1, "write a / 2e0"),
    ("ksqldb", r"SELECT a FROM s WHERE a LIKE '50\%'", 1, None, "LIKE with a backslash is not translated"),
    ("trino", "SELECT 10 / 3.0", 1, 8, "no more digits than they have there"),
    ("trino", "SELECT 1.0 * a / b FROM s", 1, 8, "write a / 2e0"),
    ("trino", "SELECT a / CAST(b AS DECIMAL(9, 2)) FROM s", 1, 8, "write a / 2e0"),
    ("flink", "SELECT EXTRACT(DOW FROM at) FROM s", 1, None, "is not the same in all systems"),
    ("materialize", "SELECT EXTRACT(SECOND FROM at) FROM s", 1, None, "is not the same in all systems"),
    ("bigquery", "SELECT TIMESTAMP_TRUNC(at, DAY, 'America/New_York') FROM s", 1, None, "times are in UTC"),
    ("bigquery", "SELECT TIMESTAMP_TRUNC(at, WEEK) FROM s", 1, None, "is not translated"),
    ("risingwave", "SELECT substring(a, -1, 3) FROM s", 1, None, "start at 1 or later"),
    ("azure", "SELECT a FROM s WHERE a LIKE '[ab]%'", 1, None, "LIKE with [ ]"),
    ("snowflake", "SELECT a FROM s AT(OFFSET => -60)", 1, None, "reads the stream as it is now"),
    ("materialize", "CREATE MATERIALIZED VIEW v (x) AS SELECT a FROM s", 1, 28, "name the columns in SELECT"),
    (
        "risingwave",
        "CREATE MATERIALIZED VIEW v AS SELECT d, count(*) FROM TUMBLE(s, at, INTERVAL '1 minute') GROUP BY d",
        1,
        1,
        "a window must be in GROUP BY",
    ),
    (
        "azure",
        "WITH x AS (SELECT a, COUNT(*) AS n FROM s TIMESTAMP BY at GROUP BY a, TumblingWindow(minute, 3)) SELECT * INTO o FROM x",
        1,
        71,
        "in the outermost SELECT only",
    ),
    (
        "azure",
        "SELECT a INTO o FROM s TIMESTAMP BY at JOIN r TIMESTAMP BY b ON s.a = r.a",
        1,
        47,
        "a join of two streams",
    ),
    ("azure", "SELECT a INTO o FROM s TIMESTAMP BY at OVER b", 1, 40, "leave out OVER"),
    (
        "flink",
        "SELECT *\nFROM s MATCH_RECOGNIZE (PARTITION BY a ORDER BY b MEASURES A.n AS n PATTERN (A B) DEFINE A AS A.n > 1) AS m",
        2,
        8,
        "write a pipeline with a session window",
    ),
    ("ksqldb", "SELECT a FROM s JOIN t WITHIN 1 HOURS ON s.a = t.a EMIT CHANGES", 1, 24, "a join WITHIN a time"),
    (
        "ksqldb",
        "CREATE STREAM a AS SELECT b FROM s PARTITION BY x EMIT CHANGES",
        1,
        36,
        "PARTITION BY is not translated",
    ),
    ("flink", "INSERT INTO m SELECT SUM(a) OVER (ORDER BY at) FROM s", 1, 22, "OVER is not supported in a pipeline"),
    (
        "ksqldb",
        "CREATE TABLE c AS SELECT COUNT(*) FROM s WINDOW SLIDING (SIZE 1 MINUTE) GROUP BY a",
        1,
        42,
        "expected WINDOW TUMBLING",
    ),
    ("ksqldb", "CREATE CONNECTOR c WITH ('a' = 'b')", 1, 8, "CREATE CONNECTOR is not supported"),
    (
        "azure",
        "SELECT COUNT(*) INTO o FROM s TIMESTAMP BY at GROUP BY SlidingWindow(second, 3)",
        1,
        56,
        "SlidingWindow is not supported; use TumblingWindow",
    ),
    (
        "azure",
        "SELECT COUNT(*) INTO o FROM s TIMESTAMP BY at GROUP BY SessionWindow(second, 3, 9)",
        1,
        56,
        "longest duration is not supported",
    ),
    ("risingwave", "SELECT * FROM unnest_all(s, at)", 1, 15, "as a table is not supported"),
    ("trino", "SELECT device FROM a.b.c", 1, 24, "a stream is scope.name"),
    ("trino", "SELECT median(a) FROM s", 1, 8, "the function median is not translated; write kll_"),
    ("snowflake", "SELECT b,\n LAST_DAY(at) FROM s", 2, 2, "the function last_day is not translated"),
    (
        "bigquery",
        "SELECT DATE_TRUNC(at, HOUR) FROM s",
        1,
        8,
        "the function date_trunc is not translated; write the function that truncates a timestamp, such as TIMESTAMP_TRUNC",
    ),
    ("trino", "SELECT a FROM read_csv('/etc/passwd')", 1, 15, "is not translated"),
    ("trino", "SELECT a FROM s,\n strpos(a, 'b')", 2, None, "a function as a table is not translated"),
    ("snowflake", "SELECT a FROM\n TABLE(split_part(s, 'x', 1))", 2, None, "a function as a table is not translated"),
    ("trino", "SELECT a FROM upper(s)", 1, None, "a function as a table is not translated"),
    ("snowflake", "DELETE FROM s", 1, 1, "only SELECT"),
    ("bigquery", "SELECT 'open FROM s", None, None, "is not closed"),
    ("bigquery", "", 1, None, "no statement found"),
]
