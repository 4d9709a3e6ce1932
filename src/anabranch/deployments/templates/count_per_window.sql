-- Counts the events of each key in windows of time.
DECLARE PARAMETER source STREAM;                       -- the stream of events
DECLARE PARAMETER target STREAM;                       -- the stream of results: opened, closed, the key, events
DECLARE PARAMETER key COLUMN;                          -- the column to count by
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER size INTERVAL DEFAULT '1 minute';    -- of a window
DECLARE PARAMETER watermark INTERVAL DEFAULT '10 seconds'; -- how long events may be out of order

CREATE STREAM :target WITH (key = :key, time = closed, watermark = :watermark) AS
SELECT window.start AS opened, window.end AS closed, :key, count(*) AS events
FROM STREAM :source
GROUP BY window(:time, :size), :key;
