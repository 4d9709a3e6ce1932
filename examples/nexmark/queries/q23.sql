-- A join of three streams: bids with their auction and its seller.
CREATE STREAM nexmark.q23 WITH (key = auction, time = date_time) AS
SELECT b.auction, b.bidder, b.price, b.date_time, a.item_name, p.name AS seller, p.city
FROM STREAM nexmark.bid AS b
JOIN STREAM nexmark.auction AS a ON b.auction = a.id
JOIN STREAM nexmark.person AS p ON a.seller = p.id;
