-- Adds to each event a column of a second stream with the same key: the value that was valid at the event's time.
-- The second stream is read as it is when the run starts.
DECLARE PARAMETER source STREAM;                       -- the stream of events
DECLARE PARAMETER reference STREAM;                    -- a stream with a key and an event time, such as prices or owners
DECLARE PARAMETER target STREAM;                       -- the stream of results: all columns of the source, and the added one
DECLARE PARAMETER key COLUMN;                          -- the column in both streams by which they are joined
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER added COLUMN;                        -- the column of the second stream that is added; null if there is none

CREATE STREAM :target WITH (time = :time) AS
SELECT events.*, versions.:added
FROM STREAM :source AS events
LEFT JOIN VERSIONS :reference AS versions
  ON versions.:key = events.:key AND events.:time >= versions._valid_from AND events.:time < versions._valid_until;
