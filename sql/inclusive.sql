-- What each context costs with all below it, over all profiles of all exports.
WITH
cost AS (
  SELECT
    value.export, node.place, value.metric, metrics.kind,
    CASE metrics.kind WHEN 'max' THEN max(value.value) WHEN 'min' THEN min(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
    CASE metrics.kind WHEN 'max' THEN max(value.real) WHEN 'min' THEN min(value.real) ELSE sum(value.real) END AS real
  FROM value
  JOIN metrics ON metrics.id = value.metric
  JOIN (SELECT DISTINCT export, id, place FROM node) AS node ON node.export = value.export AND node.id = value.node
  GROUP BY value.export, node.place, value.metric, metrics.kind
),
block AS (
  SELECT
    cost.export, size.places, cost.place - cost.place % size.places AS begin, cost.metric, cost.kind,
    CASE cost.kind WHEN 'max' THEN max(cost.value) WHEN 'min' THEN min(cost.value) ELSE CAST(sum(cost.value) AS BIGINT) END AS value,
    CASE cost.kind WHEN 'max' THEN max(cost.real) WHEN 'min' THEN min(cost.real) ELSE sum(cost.real) END AS real
  FROM cost CROSS JOIN (SELECT DISTINCT places FROM parts) AS size
  GROUP BY cost.export, size.places, cost.place - cost.place % size.places, cost.metric, cost.kind
)
SELECT
  parts.node, block.metric,
  CASE block.kind WHEN 'max' THEN max(block.value) WHEN 'min' THEN min(block.value) ELSE CAST(sum(block.value) AS BIGINT) END AS value,
  CASE block.kind WHEN 'max' THEN max(block.real) WHEN 'min' THEN min(block.real) ELSE sum(block.real) END AS real
FROM parts
JOIN block ON block.export = parts.export AND block.places = parts.places AND block.begin = parts.begin
GROUP BY parts.node, block.metric, block.kind
