-- Average selling price by seller: the mean of a seller's last ten auctions, after each. Needs rows before the present one.
CREATE STREAM nexmark.q6 AS
SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY expires ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price
FROM STREAM nexmark.q6_won;
