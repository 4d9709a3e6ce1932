-- A join with a bounded side input.
CREATE STREAM nexmark.q13 AS
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM STREAM nexmark.bid AS b JOIN nexmark.side_input AS s ON b.auction % 100 = s.key;
