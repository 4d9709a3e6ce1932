-- Auction statistics: bids and prices of each auction and day.
CREATE STREAM nexmark.q17 WITH (key = auction, time = closed) AS
SELECT auction, date_format(window.start, 'yyyy-MM-dd') AS day, window.end AS closed,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM STREAM nexmark.bid GROUP BY auction, window(date_time, '1 day');
