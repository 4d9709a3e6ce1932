SELECT auction, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time DESC) AS rank, price, bidder
FROM bid QUALIFY rank <= 10
