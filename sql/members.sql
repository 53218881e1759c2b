-- What `imbalance` compares: the profiles. To compare the ranks of an MPI job, define it as
-- SELECT DISTINCT id AS profile, rank AS member FROM profile WHERE rank IS NOT NULL
SELECT DISTINCT id AS profile, id AS member FROM profile
