-- How what a context costs, with all below it, is distributed over the profiles: the numbers of `callpath report --statistics`.
-- A profile that never was there counts as 0. Sort by `above_mean`: what the costliest profile takes more than the average one.
--
-- Ranges of places are cut into blocks as in inclusive.sql, for each profile.
WITH
cost AS (
  SELECT value.export, value.profile, node.place, value.metric, metric.kind, value.value, value.real
  FROM value
  JOIN (SELECT DISTINCT id, kind FROM metric) AS metric ON metric.id = value.metric
  JOIN (SELECT DISTINCT export, id, place FROM node) AS node ON node.export = value.export AND node.id = value.node
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
    cost.export, cost.profile, size.places, cost.place - cost.place % size.places AS begin, cost.metric, cost.kind,
    CASE WHEN cost.kind = 'max' THEN max(cost.value) ELSE CAST(sum(cost.value) AS BIGINT) END AS value,
    CASE WHEN cost.kind = 'max' THEN max(cost.real) ELSE sum(cost.real) END AS real
  FROM cost CROSS JOIN size
  GROUP BY cost.export, cost.profile, size.places, cost.place - cost.place % size.places, cost.metric, cost.kind
),
fit AS (
  SELECT
    node.export, node.id, size.places,
    node.place + (size.places - node.place % size.places) % size.places AS low,
    node.last + 1 - (node.last + 1) % size.places AS high
  FROM (SELECT DISTINCT export, id, place, last FROM node) AS node
  JOIN size ON size.places <= node.last + 1 - node.place
),
part AS (
  SELECT export, id, places, low AS begin FROM fit WHERE low < high AND low % (2 * places) <> 0
  UNION ALL
  SELECT export, id, places, high - places AS begin FROM fit WHERE low < high AND high % (2 * places) <> 0
),
inclusive AS (
  SELECT
    part.id AS node, block.profile, block.metric, block.kind,
    CASE WHEN block.kind = 'max' THEN max(block.value) ELSE CAST(sum(block.value) AS BIGINT) END AS value,
    CASE WHEN block.kind = 'max' THEN max(block.real) ELSE sum(block.real) END AS real
  FROM part
  JOIN block ON block.export = part.export AND block.places = part.places AND block.begin = part.begin
  GROUP BY part.id, block.profile, block.metric, block.kind
),
-- What the profiles without a value count for.
present AS (
  SELECT node, profile, metric, kind, value, real, coalesce(CAST(value AS DOUBLE), real) AS cost FROM inclusive
),
profiles AS (SELECT count(DISTINCT id) AS count FROM profile),
spread AS (
  SELECT
    node, metric,
    CASE WHEN kind = 'max' THEN max(value) ELSE CAST(sum(value) AS BIGINT) END AS total,
    CASE WHEN kind = 'max' THEN max(real) ELSE sum(real) END AS real_total,
    sum(cost) / (SELECT count FROM profiles) AS mean,
    CASE WHEN count(*) < (SELECT count FROM profiles) THEN least(min(cost), 0) ELSE min(cost) END AS least,
    CASE WHEN count(*) < (SELECT count FROM profiles) THEN greatest(max(cost), 0) ELSE max(cost) END AS greatest,
    sum(cost * cost) / (SELECT count FROM profiles) AS mean_square,
    count(*) AS present,
    max_by(profile, cost) AS costliest
  FROM present
  GROUP BY node, metric, kind
)
SELECT
  node, metric, total, real_total, mean, least, greatest,
  sqrt(greatest(mean_square - mean * mean, 0)) AS deviation, present, costliest, greatest - mean AS above_mean
FROM spread
