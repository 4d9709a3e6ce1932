-- Bidding statistics: bids, bidders and auctions of each day, by rank of the price. Exact: Spark refuses
-- count(DISTINCT) in a stream, but not the size of a set.
CREATE STREAM nexmark.q15 WITH (time = closed) AS
SELECT date_format(window.start, 'yyyy-MM-dd') AS day, window.end AS closed,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       size(collect_set(bidder)) AS total_bidders,
       size(collect_set(bidder) FILTER (WHERE price < 10000)) AS rank1_bidders,
       size(collect_set(bidder) FILTER (WHERE price >= 1000000)) AS rank3_bidders,
       size(collect_set(auction)) AS total_auctions
FROM STREAM nexmark.bid GROUP BY window(date_time, '1 day');
