-- What each context costs itself, over all profiles of all exports: the numbers of `callpath merge`.
SELECT
  value.node, value.metric,
  CASE metrics.kind WHEN 'max' THEN max(value.value) WHEN 'min' THEN min(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
  CASE metrics.kind WHEN 'max' THEN max(value.real) WHEN 'min' THEN min(value.real) ELSE sum(value.real) END AS real
FROM value
JOIN metrics ON metrics.id = value.metric
GROUP BY value.node, value.metric, metrics.kind
