-- User sessions: how many bids did a bidder make in a session of activity?
CREATE STREAM nexmark.q11 WITH (key = bidder, time = closed) AS
SELECT bidder, count(*) AS bids, session_window.start AS opened, session_window.end AS closed
FROM STREAM nexmark.bid GROUP BY bidder, session_window(date_time, '1 second');
