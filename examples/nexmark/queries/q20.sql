-- Expand bids with the auctions of one category.
CREATE STREAM nexmark.q20 WITH (key = auction, time = date_time) AS
SELECT b.auction, b.bidder, b.price, b.channel, b.date_time, a.item_name, a.seller, a.expires
FROM STREAM nexmark.bid AS b JOIN STREAM nexmark.auction AS a ON b.auction = a.id
WHERE a.category = 10;
