-- Passes on the first of the events that have the same key within a time, such as those that a device sent again.
-- An event is passed on once no repetition of it can come any more: `within` after the last one, and the watermark.
DECLARE PARAMETER source STREAM;                       -- the stream of events
DECLARE PARAMETER target STREAM;                       -- the stream of results, with all columns of the source
DECLARE PARAMETER key COLUMN;                          -- the column that tells events apart, such as an id
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER within INTERVAL DEFAULT '1 hour';    -- later events with the key are others
DECLARE PARAMETER watermark INTERVAL DEFAULT '10 seconds'; -- how long events may be out of order

CREATE STREAM :target WITH (time = :time, watermark = :watermark) AS
SELECT first.* FROM (
  SELECT min_by(struct(*), struct(:time, _segment, _offset)) AS first
  FROM STREAM :source
  GROUP BY session_window(:time, :within), :key
);
