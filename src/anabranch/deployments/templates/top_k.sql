-- Finds the most frequent values of a column in windows of time, by a sketch of bounded size.
-- Counts are exact as long as a window has no more different values than `tracked`.
DECLARE PARAMETER source STREAM;                       -- the stream of events
DECLARE PARAMETER target STREAM;                       -- the stream of results: closed, item, events
DECLARE PARAMETER item COLUMN;                         -- the column whose values are counted
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER k INT DEFAULT 10;                    -- how many values a window has at most
DECLARE PARAMETER tracked INT DEFAULT 10000;           -- how many different values the sketch holds
DECLARE PARAMETER size INTERVAL DEFAULT '1 minute';    -- of a window
DECLARE PARAMETER watermark INTERVAL DEFAULT '10 seconds'; -- how long events may be out of order

CREATE STREAM :target WITH (key = item, time = closed, watermark = :watermark) AS
SELECT closed, hit.item AS item, hit.count AS events
FROM (
  SELECT window.end AS closed, explode(approx_top_k(:item, :k, :tracked)) AS hit
  FROM STREAM :source
  GROUP BY window(:time, :size)
);
