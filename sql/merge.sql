-- What each context costs itself, over all profiles of all exports: the numbers of `callpath merge`.
SELECT
  value.node, value.metric,
  CASE WHEN metrics.kind = 'max' THEN max(value.value) ELSE CAST(sum(value.value) AS BIGINT) END AS value,
  CASE WHEN metrics.kind = 'max' THEN max(value.real) ELSE sum(value.real) END AS real
FROM value
JOIN metrics ON metrics.id = value.metric
GROUP BY value.node, value.metric, metrics.kind
