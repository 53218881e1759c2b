-- What each context costs with all below it, over all profiles of all exports.
WITH
cost AS (
  SELECT
    value.export, node.place, value.metric, metrics.kind,
    CASE WHEN metrics.kind = 'max' THEN max(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
    CASE WHEN metrics.kind = 'max' THEN max(value.real) ELSE sum(value.real) END AS real
  FROM value
  JOIN metrics ON metrics.id = value.metric
  JOIN (SELECT DISTINCT export, id, place FROM node) AS node ON node.export = value.export AND node.id = value.node
  GROUP BY value.export, node.place, value.metric, metrics.kind
),
block AS (
  SELECT
    cost.export, size.places, cost.place - cost.place % size.places AS begin, cost.metric, cost.kind,
    CASE WHEN cost.kind = 'max' THEN max(cost.value) ELSE CAST(sum(cost.value) AS BIGINT) END AS value,
    CASE WHEN cost.kind = 'max' THEN max(cost.real) ELSE sum(cost.real) END AS real
  FROM cost CROSS JOIN (SELECT DISTINCT places FROM parts) AS size
  GROUP BY cost.export, size.places, cost.place - cost.place % size.places, cost.metric, cost.kind
)
SELECT
  parts.node, block.metric,
  CASE WHEN block.kind = 'max' THEN max(block.value) ELSE CAST(sum(block.value) AS BIGINT) END AS value,
  CASE WHEN block.kind = 'max' THEN max(block.real) ELSE sum(block.real) END AS real
FROM parts
JOIN block ON block.export = parts.export AND block.places = parts.places AND block.begin = parts.begin
GROUP BY parts.node, block.metric, block.kind
