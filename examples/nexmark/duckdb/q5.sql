WITH counts AS (
  SELECT closed, auction, count(*) AS bids
  FROM (SELECT auction, unnest(generate_series(
          time_bucket(INTERVAL 2 seconds, date_time) + INTERVAL 2 seconds,
          time_bucket(INTERVAL 2 seconds, date_time) + INTERVAL 10 seconds, INTERVAL 2 seconds)) AS closed FROM bid)
  GROUP BY ALL)
SELECT closed, auction, bids FROM counts
QUALIFY bids = max(bids) OVER (PARTITION BY closed)
