-- Currency conversion: prices in euros.
CREATE STREAM nexmark.q1 AS
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time, extra FROM STREAM nexmark.bid;
