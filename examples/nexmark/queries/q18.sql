-- Find the last bid of each bidder for each auction; always the newest.
CREATE STREAM nexmark.q18 WITH (key = auction, time = date_time, mode = complete) AS
SELECT auction, bidder, last.price, last.channel, last.date_time
FROM (SELECT auction, bidder, max_by(struct(price, channel, date_time), date_time) AS last
      FROM STREAM nexmark.bid GROUP BY auction, bidder);
