-- Average selling price by seller: the mean of a seller's last ten auctions. Spark refuses the form with OVER (ROWS …) in
-- a stream (refused/q6.sql), so this holds the newest value of each seller instead of one after each auction.
CREATE STREAM nexmark.q6_bids WITH (key = id, time = expires) AS
SELECT a.id, a.seller, a.expires, b.price
FROM STREAM nexmark.auction AS a JOIN STREAM nexmark.bid AS b
  ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires;

CREATE STREAM nexmark.q6_won WITH (key = id, time = expires, watermark = '30 seconds') AS
SELECT id, seller, expires, max(price) AS price FROM STREAM nexmark.q6_bids GROUP BY id, seller, expires;

CREATE STREAM nexmark.q6 WITH (key = seller, mode = complete) AS
SELECT seller, aggregate(last, 0D, (sum, each) -> sum + each.price) / size(last) AS price
FROM (SELECT seller, slice(sort_array(collect_list(struct(expires, id, price)), false), 1, 10) AS last
      FROM STREAM nexmark.q6_won GROUP BY seller);
