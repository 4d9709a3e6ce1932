-- Local item suggestion: who sells in these states? A join without a bound in time.
CREATE STREAM nexmark.q3 WITH (key = id) AS
SELECT p.name, p.city, p.state, a.id
FROM STREAM nexmark.auction AS a JOIN STREAM nexmark.person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
