-- Passes on measurements below one bound or above another, with the side on which they are.
DECLARE PARAMETER source STREAM;                       -- the stream of measurements
DECLARE PARAMETER target STREAM;                       -- the stream of results: the key, the time, the value, side
DECLARE PARAMETER key COLUMN;                          -- what was measured, such as a device
DECLARE PARAMETER time COLUMN;                         -- the event time of the source
DECLARE PARAMETER value COLUMN;                        -- the measured number
DECLARE PARAMETER above DOUBLE DEFAULT Infinity;       -- greater values are passed on as 'high'
DECLARE PARAMETER below DOUBLE DEFAULT -Infinity;      -- smaller values are passed on as 'low'

CREATE STREAM :target WITH (key = :key, time = :time) AS
SELECT :key, :time, :value, CASE WHEN :value > :above THEN 'high' ELSE 'low' END AS side
FROM STREAM :source
WHERE :value > :above OR :value < :below;
