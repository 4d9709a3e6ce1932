-- Joins the events of each key to sessions, which end when nothing comes for a time.
DECLARE PARAMETER source STREAM;                       -- the stream of events
DECLARE PARAMETER target STREAM;                       -- the stream of results: opened, closed, last, the key, events
DECLARE PARAMETER key COLUMN;                          -- whose events, such as a user
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER gap INTERVAL DEFAULT '30 minutes';   -- without events, after which a session has ended
DECLARE PARAMETER watermark INTERVAL DEFAULT '10 seconds'; -- how long events may be out of order

CREATE STREAM :target WITH (key = :key, time = closed, watermark = :watermark) AS
SELECT session_window.start AS opened, session_window.end AS closed, max(:time) AS last, :key, count(*) AS events
FROM STREAM :source
GROUP BY session_window(:time, :gap), :key;
