-- How what a context costs, with all below it, is distributed over the profiles: the numbers of `callpath report --statistics`. Takes
-- `parts`. A profile that never was there counts as 0. Sort by `above_mean`: what the costliest profile takes more than the average.
WITH
block AS (
  SELECT
    value.export, value.profile, size.places, node.place - node.place % size.places AS begin, value.metric, metric.kind,
    CASE WHEN metric.kind = 'max' THEN max(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
    CASE WHEN metric.kind = 'max' THEN max(value.real) ELSE sum(value.real) END AS real
  FROM value
  JOIN (SELECT DISTINCT id, kind FROM metric) AS metric ON metric.id = value.metric
  JOIN (SELECT DISTINCT export, id, place FROM node) AS node ON node.export = value.export AND node.id = value.node
  CROSS JOIN (SELECT DISTINCT places FROM parts) AS size
  GROUP BY value.export, value.profile, size.places, node.place - node.place % size.places, value.metric, metric.kind
),
inclusive AS (
  SELECT
    parts.node, block.profile, block.metric, block.kind,
    CASE WHEN block.kind = 'max' THEN max(block.value) ELSE CAST(sum(block.value) AS BIGINT) END AS value,
    CASE WHEN block.kind = 'max' THEN max(block.real) ELSE sum(block.real) END AS real
  FROM parts
  JOIN block ON block.export = parts.export AND block.places = parts.places AND block.begin = parts.begin
  GROUP BY parts.node, block.profile, block.metric, block.kind
),
present AS (
  SELECT node, profile, metric, kind, value, real, coalesce(CAST(value AS DOUBLE), real) AS cost FROM inclusive
  WHERE coalesce(value, 1) <> 0 AND coalesce(real, 1) <> 0
),
profiles AS (SELECT CAST(count(DISTINCT id) AS DOUBLE) AS count FROM profile),
spread AS (
  SELECT
    node, metric,
    CASE WHEN kind = 'max' THEN max(value) ELSE CAST(sum(value) AS BIGINT) END AS total,
    CASE WHEN kind = 'max' THEN max(real) ELSE sum(real) END AS real_total,
    sum(cost) / (SELECT count FROM profiles) AS mean,
    CASE WHEN count(*) < (SELECT count FROM profiles) THEN least(min(cost), 0) ELSE min(cost) END AS least,
    CASE WHEN count(*) < (SELECT count FROM profiles) THEN greatest(max(cost), 0) ELSE max(cost) END AS greatest,
    var_pop(cost) * count(*) + avg(cost) * avg(cost) * count(*) * ((SELECT count FROM profiles) - count(*)) / (SELECT count FROM profiles)
      AS squares,
    count(*) AS present,
    max_by(profile, cost) AS costliest
  FROM present
  GROUP BY node, metric, kind
)
SELECT
  node, metric, total, real_total, mean, least, greatest, sqrt(squares / (SELECT count FROM profiles)) AS deviation, present,
  costliest, greatest - mean AS above_mean
FROM spread
