-- What `anabranch demo` does with the measurements of this machine. Each statement is a query of its own; its results
-- are a stream too. Run it yourself with: anabranch --store ./anabranch-demo pipeline run FILE.sql

-- Five-second windows, one row for each thing that is measured.
CREATE STREAM host.per_5s WITH (key = source, time = closed, watermark = '1 second', trigger = '1 second') AS
SELECT
  window.start AS opened,
  window.end AS closed,
  metric,
  source,
  count(*) AS events,
  avg(value) AS mean,
  min(value) AS low,
  max(value) AS high,
  first(unit) AS unit
FROM STREAM host.metrics
GROUP BY window(at, '5 seconds'), metric, source;

-- Sliding windows, twenty seconds long, a new one every five: each event counts in four of them.
CREATE STREAM host.smooth WITH (key = source, time = closed, watermark = '1 second', trigger = '1 second') AS
SELECT
  window.start AS opened,
  window.end AS closed,
  metric,
  source,
  count(*) AS events,
  avg(value) AS mean,
  first(unit) AS unit
FROM STREAM host.metrics
GROUP BY window(at, '20 seconds', '5 seconds'), metric, source;
