-- How what a context costs, with all below it, is distributed over the profiles: the numbers of `callpath report --statistics`. A
-- profile that never was there counts as 0. Sort by `above_mean`: what the costliest profile takes more than the average one.
WITH
block AS (
  SELECT
    value.export, members.member, size.places, node.place - node.place % size.places AS begin, value.metric, metrics.kind,
    CASE metrics.kind WHEN 'max' THEN max(value.value) WHEN 'min' THEN min(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
    CASE metrics.kind WHEN 'max' THEN max(value.real) WHEN 'min' THEN min(value.real) ELSE sum(value.real) END AS real
  FROM value
  JOIN members ON members.profile = value.profile
  JOIN metrics ON metrics.id = value.metric
  JOIN (SELECT DISTINCT export, id, place FROM node) AS node ON node.export = value.export AND node.id = value.node
  CROSS JOIN (SELECT DISTINCT places FROM parts) AS size
  GROUP BY value.export, members.member, size.places, node.place - node.place % size.places, value.metric, metrics.kind
),
inclusive AS (
  SELECT
    parts.node, block.member, block.metric, block.kind,
    CASE block.kind WHEN 'max' THEN max(block.value) WHEN 'min' THEN min(block.value) ELSE CAST(sum(block.value) AS BIGINT) END AS value,
    CASE block.kind WHEN 'max' THEN max(block.real) WHEN 'min' THEN min(block.real) ELSE sum(block.real) END AS real
  FROM parts
  JOIN block ON block.export = parts.export AND block.places = parts.places AND block.begin = parts.begin
  GROUP BY parts.node, block.member, block.metric, block.kind
),
present AS (
  SELECT node, member, metric, kind, value, real, coalesce(CAST(value AS DOUBLE), real) AS cost FROM inclusive
  WHERE coalesce(value, 1) <> 0 AND coalesce(real, 1) <> 0
),
everyone AS (SELECT CAST(count(DISTINCT member) AS DOUBLE) AS count FROM members),
spread AS (
  SELECT
    node, metric,
    CASE kind WHEN 'max' THEN max(value) WHEN 'min' THEN min(value) ELSE CAST(sum(value) AS BIGINT) END AS total,
    CASE kind WHEN 'max' THEN max(real) WHEN 'min' THEN min(real) ELSE sum(real) END AS real_total,
    sum(cost) / (SELECT count FROM everyone) AS mean,
    CASE WHEN count(*) < (SELECT count FROM everyone) THEN least(min(cost), 0) ELSE min(cost) END AS least,
    CASE WHEN count(*) < (SELECT count FROM everyone) THEN greatest(max(cost), 0) ELSE max(cost) END AS greatest,
    var_pop(cost) * count(*)
      + avg(cost) * avg(cost) * count(*) * ((SELECT count FROM everyone) - count(*)) / (SELECT count FROM everyone) AS squares,
    count(*) AS present,
    max_by(member, cost) AS costliest
  FROM present
  GROUP BY node, metric, kind
)
SELECT
  node, metric, total, real_total, mean, least, greatest, sqrt(squares / (SELECT count FROM everyone)) AS deviation, present,
  costliest, greatest - mean AS above_mean
FROM spread
