-- Reduces measurements to one row a key and window: their number, least, greatest, mean and sum.
DECLARE PARAMETER source STREAM;                       -- the stream of measurements
DECLARE PARAMETER target STREAM;                       -- the stream of results: closed, the key, events, least, greatest, mean, total
DECLARE PARAMETER key COLUMN;                          -- what was measured, such as a device
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER value COLUMN;                        -- the measured number; nulls are left out
DECLARE PARAMETER size INTERVAL DEFAULT '1 minute';    -- of a window
DECLARE PARAMETER watermark INTERVAL DEFAULT '10 seconds'; -- how long events may be out of order

CREATE STREAM :target WITH (key = :key, time = closed, watermark = :watermark) AS
SELECT window.end AS closed, :key, count(:value) AS events, min(:value) AS least, max(:value) AS greatest,
  avg(:value) AS mean, sum(:value) AS total
FROM STREAM :source
GROUP BY window(:time, :size), :key;
