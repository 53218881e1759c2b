-- What each context costs with all below it, over all profiles of all exports.
--
-- Within an export, what is below a context has the places from its own up to `last`. Such a range is cut into blocks of 1, 2, 4, ...
-- places, each of which begins at a multiple of its size: two of a size at most. What blocks cost is added up once. So no step goes
-- up the tree, however deep it is, and high-water marks are rolled up as sums are.
WITH
cost AS (
  SELECT
    value.export, node.place, value.metric, metric.kind,
    CASE WHEN metric.kind = 'max' THEN max(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
    CASE WHEN metric.kind = 'max' THEN max(value.real) ELSE sum(value.real) END AS real
  FROM value
  JOIN (SELECT DISTINCT id, kind FROM metric) AS metric ON metric.id = value.metric
  JOIN (SELECT DISTINCT export, id, place FROM node) AS node ON node.export = value.export AND node.id = value.node
  GROUP BY value.export, node.place, value.metric, metric.kind
),
size AS (
  SELECT places FROM (VALUES
    (1), (2), (4), (8), (16), (32), (64), (128), (256), (512), (1024), (2048), (4096), (8192), (16384), (32768), (65536),
    (131072), (262144), (524288), (1048576), (2097152), (4194304), (8388608), (16777216), (33554432), (67108864),
    (134217728), (268435456), (536870912), (1073741824)) AS size(places)
  WHERE places <= (SELECT max(last) + 1 FROM node)
),
block AS (
  SELECT
    cost.export, size.places, cost.place - cost.place % size.places AS begin, cost.metric, cost.kind,
    CASE WHEN cost.kind = 'max' THEN max(cost.value) ELSE CAST(sum(cost.value) AS BIGINT) END AS value,
    CASE WHEN cost.kind = 'max' THEN max(cost.real) ELSE sum(cost.real) END AS real
  FROM cost CROSS JOIN size
  GROUP BY cost.export, size.places, cost.place - cost.place % size.places, cost.metric, cost.kind
),
-- Of each size, the blocks that lie in a context's range: from `low` to `high`.
fit AS (
  SELECT
    node.export, node.id, size.places,
    node.place + (size.places - node.place % size.places) % size.places AS low,
    node.last + 1 - (node.last + 1) % size.places AS high
  FROM (SELECT DISTINCT export, id, place, last FROM node) AS node
  JOIN size ON size.places <= node.last + 1 - node.place
),
-- Those of them that no larger block covers: the first one, if its number is odd, and the last one, if the next number is.
part AS (
  SELECT export, id, places, low AS begin FROM fit WHERE low < high AND low % (2 * places) <> 0
  UNION ALL
  SELECT export, id, places, high - places AS begin FROM fit WHERE low < high AND high % (2 * places) <> 0
)
SELECT
  part.id AS node, block.metric,
  CASE WHEN block.kind = 'max' THEN max(block.value) ELSE CAST(sum(block.value) AS BIGINT) END AS value,
  CASE WHEN block.kind = 'max' THEN max(block.real) ELSE sum(block.real) END AS real
FROM part
JOIN block ON block.export = part.export AND block.places = part.places AND block.begin = part.begin
GROUP BY part.id, block.metric, block.kind
