WITH won AS (
  SELECT a.id, a.seller, a.expires, max(b.price) AS price FROM auction a JOIN bid b
    ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY ALL),
last AS (SELECT * FROM won QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10)
SELECT seller, avg(price) FROM last GROUP BY seller
