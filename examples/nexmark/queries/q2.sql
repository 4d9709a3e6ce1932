-- Selection: the bids on some auctions.
CREATE STREAM nexmark.q2 AS
SELECT auction, price, date_time FROM STREAM nexmark.bid WHERE auction % 123 = 0;
