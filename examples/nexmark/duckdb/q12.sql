SELECT bidder, count(*), time_bucket(INTERVAL 10 seconds, appended),
       time_bucket(INTERVAL 10 seconds, appended) + INTERVAL 10 seconds
FROM q12_bids GROUP BY bidder, time_bucket(INTERVAL 10 seconds, appended)
