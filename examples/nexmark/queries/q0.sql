-- Pass through: what reading and writing alone costs.
CREATE STREAM nexmark.q0 AS
SELECT auction, bidder, price, date_time, extra FROM STREAM nexmark.bid;
