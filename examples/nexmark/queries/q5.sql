-- Hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.
CREATE STREAM nexmark.q5_counts WITH (time = closed) AS
SELECT window.end AS closed, auction, count(*) AS bids
FROM STREAM nexmark.bid GROUP BY window(date_time, '10 seconds', '2 seconds'), auction;

CREATE STREAM nexmark.q5_most WITH (time = closed) AS
SELECT closed, max(bids) AS bids FROM STREAM nexmark.q5_counts GROUP BY closed;

CREATE STREAM nexmark.q5 WITH (key = auction, time = closed) AS
SELECT c.closed, c.auction, c.bids
FROM STREAM nexmark.q5_counts AS c JOIN STREAM nexmark.q5_most AS m ON c.closed = m.closed AND c.bids = m.bids;
