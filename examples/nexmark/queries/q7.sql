-- Highest bid: the bids with the highest price of each 10 seconds.
CREATE STREAM nexmark.q7_highest WITH (time = closed) AS
SELECT window.start AS opened, window.end AS closed, max(price) AS price
FROM STREAM nexmark.bid GROUP BY window(date_time, '10 seconds');

CREATE STREAM nexmark.q7 WITH (key = auction, time = date_time) AS
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM STREAM nexmark.bid AS b JOIN STREAM nexmark.q7_highest AS h
  ON b.price = h.price AND b.date_time >= h.closed - INTERVAL '10 seconds' AND b.date_time < h.closed;
