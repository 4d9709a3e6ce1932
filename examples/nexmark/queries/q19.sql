-- The ten highest bids of each auction; always the newest.
CREATE STREAM nexmark.q19 WITH (key = auction, mode = complete) AS
SELECT auction, rank + 1 AS rank, each.price, each.bidder
FROM (SELECT auction, posexplode(slice(sort_array(collect_list(struct(price, date_time, bidder)), false), 1, 10))
                      AS (rank, each)
      FROM STREAM nexmark.bid GROUP BY auction);
