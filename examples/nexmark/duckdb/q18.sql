SELECT auction, bidder, price, channel, date_time FROM bid
QUALIFY row_number() OVER (PARTITION BY auction, bidder ORDER BY date_time DESC) = 1
