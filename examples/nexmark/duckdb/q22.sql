SELECT auction, bidder, price, channel, date_time, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6)
FROM bid
