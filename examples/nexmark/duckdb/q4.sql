SELECT category, avg(price) FROM (
  SELECT a.id, a.category, max(b.price) AS price FROM auction a JOIN bid b
    ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY ALL)
GROUP BY category
