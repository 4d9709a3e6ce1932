-- Average price for a category: the mean of the winning bids of its auctions, always the newest.
CREATE STREAM nexmark.q4_bids WITH (key = id, time = expires) AS
SELECT a.id, a.category, a.expires, b.price
FROM STREAM nexmark.auction AS a JOIN STREAM nexmark.bid AS b
  ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires;

-- An auction's bids can arrive until it expires, at most 20 seconds after it began.
CREATE STREAM nexmark.q4_won WITH (key = id, time = expires, watermark = '30 seconds') AS
SELECT id, category, expires, max(price) AS price FROM STREAM nexmark.q4_bids GROUP BY id, category, expires;

CREATE STREAM nexmark.q4 WITH (key = category, mode = complete) AS
SELECT category, avg(price) AS price FROM STREAM nexmark.q4_won GROUP BY category;
