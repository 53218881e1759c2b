-- The parts of each context's range of places, which `inclusive` and `imbalance` are made of.
--
-- Within an export, what is below a context has the places from its own up to `last`. The range is cut into blocks of 1, 2, 4, ...
-- places, each of which begins at a multiple of its size: at most two of each size. What a block costs is added up once, for all
-- contexts above. So no query goes up the tree step by step, however deep it is, and high-water marks roll up as sums do.
WITH
size AS (
  SELECT places FROM (VALUES
    (1), (2), (4), (8), (16), (32), (64), (128), (256), (512), (1024), (2048), (4096), (8192), (16384), (32768), (65536),
    (131072), (262144), (524288), (1048576), (2097152), (4194304), (8388608), (16777216), (33554432), (67108864),
    (134217728), (268435456), (536870912), (1073741824)) AS size(places)
),
-- Of each size, the blocks that lie in a range: from `low` to `high`.
fit AS (
  SELECT
    node.export, node.id, size.places,
    node.place + (size.places - node.place % size.places) % size.places AS low,
    node.last + 1 - (node.last + 1) % size.places AS high
  FROM (SELECT DISTINCT export, id, place, last FROM node) AS node
  JOIN size ON size.places <= node.last + 1 - node.place
)
-- Those of them that no larger block covers: the first one, if its number is odd, and the last one, if the next number is.
SELECT export, id AS node, places, low AS begin FROM fit WHERE low < high AND low % (2 * places) <> 0
UNION ALL
SELECT export, id AS node, places, high - places AS begin FROM fit WHERE low < high AND high % (2 * places) <> 0
