-- The folders of the address.
CREATE STREAM nexmark.q22 AS
SELECT auction, bidder, price, channel, date_time,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM STREAM nexmark.bid;
