SELECT channel, strftime(date_time, '%Y-%m-%d') AS day, time_bucket(INTERVAL 1 day, date_time) + INTERVAL 1 day AS closed,
       max(strftime(date_time, '%H:%M')), count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 1000000),
       count(DISTINCT bidder), count(DISTINCT auction) FILTER (price >= 1000000)
FROM bid GROUP BY channel, day, closed
