-- The metrics of all exports, each once.
SELECT DISTINCT id, name, unit, kind, type, bin, source, note, formula FROM metric
