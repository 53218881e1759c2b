-- The contexts of all exports, each once, with names. What two exports say differently of a context is not known: NULL.
SELECT
  node.id, node.parent, node.depth, node.kind,
  function.name AS name, module.name AS module, file.name AS file,
  CASE WHEN count(node.line) = count(*) AND min(node.line) = max(node.line) THEN min(node.line) END AS line,
  CASE WHEN count(node.source_column) = count(*) AND min(node.source_column) = max(node.source_column)
    THEN min(node.source_column) END AS source_column,
  CASE WHEN count(node.address) = count(*) AND min(node.address) = max(node.address) THEN min(node.address) END AS address,
  node.discriminator
FROM node
LEFT JOIN (SELECT DISTINCT id, name FROM function) AS function ON function.id = node.function
LEFT JOIN (SELECT DISTINCT id, name FROM module) AS module ON module.id = node.module
LEFT JOIN (SELECT DISTINCT id, name FROM file) AS file ON file.id = node.file
GROUP BY node.id, node.parent, node.depth, node.kind, function.name, module.name, file.name, node.discriminator
