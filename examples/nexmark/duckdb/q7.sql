SELECT auction, price, bidder, date_time, extra FROM bid
QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 seconds, date_time))
