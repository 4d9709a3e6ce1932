SELECT auction, bidder, price, date_time, extra, strftime(date_time, '%Y-%m-%d'), strftime(date_time, '%H:%M') FROM bid
