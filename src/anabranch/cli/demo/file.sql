-- What `anabranch demo --file $file` does with its rows.

CREATE STREAM $scope.${name}_windows WITH (time = closed, watermark = '$size') AS
SELECT
  window.start AS opened,
  window.end AS closed,$key
  count(*) AS events$values
FROM STREAM $scope.`$name`
GROUP BY window($time, '$size')$group;

CREATE STREAM $scope.${name}_smooth WITH (time = closed, watermark = '$size') AS
SELECT
  window.start AS opened,
  window.end AS closed,
  count(*) AS events$values
FROM STREAM $scope.`$name`
GROUP BY window($time, '$long', '$size');
