SELECT auction, strftime(date_time, '%Y-%m-%d') AS day, time_bucket(INTERVAL 1 day, date_time) + INTERVAL 1 day AS closed,
       count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 1000000),
       min(price), max(price), avg(price), sum(price)
FROM bid GROUP BY auction, day, closed
