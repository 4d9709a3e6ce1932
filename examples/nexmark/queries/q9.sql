-- Winning bids: of each auction the highest bid while it was open, the earliest of equals.
CREATE STREAM nexmark.q9_bids WITH (key = id, time = expires) AS
SELECT a.id, a.item_name, a.seller, a.category, a.expires, b.bidder, b.price, b.date_time AS bid_time
FROM STREAM nexmark.auction AS a JOIN STREAM nexmark.bid AS b
  ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires;

CREATE STREAM nexmark.q9 WITH (key = id, time = expires, watermark = '30 seconds') AS
SELECT id, item_name, seller, category, expires, best.bidder, best.price, best.bid_time
FROM (SELECT id, item_name, seller, category, expires,
             max_by(struct(bidder, price, bid_time), struct(price, -unix_micros(bid_time))) AS best
      FROM STREAM nexmark.q9_bids GROUP BY id, item_name, seller, category, expires);
