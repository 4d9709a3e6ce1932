-- Channel statistics: the same for each channel.
CREATE STREAM nexmark.q16 WITH (key = channel, time = closed) AS
SELECT channel, date_format(window.start, 'yyyy-MM-dd') AS day, window.end AS closed,
       max(date_format(date_time, 'HH:mm')) AS minute,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       size(collect_set(bidder)) AS total_bidders,
       size(collect_set(auction) FILTER (WHERE price >= 1000000)) AS rank3_auctions
FROM STREAM nexmark.bid GROUP BY channel, window(date_time, '1 day');
