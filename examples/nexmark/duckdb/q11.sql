WITH marked AS (
  SELECT bidder, date_time,
         coalesce(date_time > lag(date_time) OVER each + INTERVAL 1 second, true) AS begins
  FROM bid WINDOW each AS (PARTITION BY bidder ORDER BY date_time)),
numbered AS (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM marked)
SELECT bidder, count(*), min(date_time), max(date_time) + INTERVAL 1 second FROM numbered GROUP BY bidder, session
