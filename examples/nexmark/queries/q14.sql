-- Calculation: a conversion, a classification by the hour, and a count of characters.
CREATE STREAM nexmark.q14 AS
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM STREAM nexmark.bid WHERE 0.908 * price > 10000 AND 0.908 * price < 500000;
