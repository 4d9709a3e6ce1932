-- Windows of processing time, which is here the time at which the store appended a bid: so a replay counts alike.
CREATE STREAM nexmark.q12_bids WITH (key = bidder, time = appended) AS
SELECT bidder, _appended AS appended FROM STREAM nexmark.bid;

CREATE STREAM nexmark.q12 WITH (key = bidder, time = closed) AS
SELECT bidder, count(*) AS bids, window.start AS opened, window.end AS closed
FROM STREAM nexmark.q12_bids GROUP BY bidder, window(appended, '10 seconds');
