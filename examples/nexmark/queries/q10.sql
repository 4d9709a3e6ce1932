-- Log to files: day and minute by which the bids are put away.
CREATE STREAM nexmark.q10 AS
SELECT auction, bidder, price, date_time, extra,
       date_format(date_time, 'yyyy-MM-dd') AS day, date_format(date_time, 'HH:mm') AS minute
FROM STREAM nexmark.bid;
