SELECT strftime(date_time, '%Y-%m-%d') AS day, time_bucket(INTERVAL 1 day, date_time) + INTERVAL 1 day AS closed,
       count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000),
       count(*) FILTER (price >= 1000000), count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000),
       count(DISTINCT bidder) FILTER (price >= 1000000), count(DISTINCT auction)
FROM bid GROUP BY day, closed
