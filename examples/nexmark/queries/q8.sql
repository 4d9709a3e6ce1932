-- Monitor new users: who opened an auction within the same 10 seconds?
CREATE STREAM nexmark.q8 WITH (key = id, time = opened) AS
SELECT p.id, p.name, p.opened
FROM (SELECT id, name, window.start AS opened, window FROM STREAM nexmark.person
      GROUP BY id, name, window(date_time, '10 seconds')) AS p
JOIN (SELECT seller, window FROM STREAM nexmark.auction
      GROUP BY seller, window(date_time, '10 seconds')) AS a
  ON p.id = a.seller AND p.window = a.window;
