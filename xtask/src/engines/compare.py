"""Runs the SQL that callpath ships over several exports, on one engine, and compares each context's numbers with those of the merged
database: as `callpath report --json` says them, and, by ids, as its own export does.

compare.py ENGINE SQL_DIRECTORY MERGED EXPORT...

MERGED is a directory with the export of the merged database (`export`), the JSON of its context view (`report.json`) and of statistics
(`statistics-*.json`). Prints a line for each comparison; ends with 1 if numbers differ, and says where.
"""

import json
import math
import os
import sys
import time

TABLES = ["node", "value", "metric", "profile", "module", "function", "file"]
# In this order: one may use those before it.
SHIPPED = ["nodes", "metrics", "members", "merge", "parts", "inclusive", "imbalance"]
LEVELS = ("rank", "process", "thread")
NAMED = ("procedure", "inlined", "system_call", "gap")
WITH_LINE = ("line", "loop", "inlined")


class DuckDB:
    def __init__(self):
        import duckdb

        self.connection = duckdb.connect()

    def register(self, exports, queries):
        for table in TABLES:
            files = [f"{export}/{table}.parquet" for export in exports]
            self.connection.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM read_parquet({files!r})")
        for name, sql in queries:
            self.connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()

    def stop(self):
        self.connection.close()


class Spark:
    """A master, two workers with a core and a gigabyte each: every join and sum is between processes."""

    def __init__(self):
        import pyspark
        from pyspark.sql import SparkSession

        os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        session = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
        session = session.config("spark.executor.memory", "1024m").config("spark.sql.shuffle.partitions", "4")
        session = session.config("spark.ui.showConsoleProgress", "false")
        self.session = session.config("spark.sql.warehouse.dir", os.path.abspath("spark")).getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def register(self, exports, queries):
        for table in TABLES:
            files = [f"{export}/{table}.parquet" for export in exports]
            self.session.read.parquet(*files).createOrReplaceTempView(table)
        for name, sql in queries:
            self.session.sql(sql).createOrReplaceTempView(name)

    def rows(self, sql):
        return [tuple(row) for row in self.session.sql(sql).collect()]

    def stop(self):
        self.session.stop()


class Paths:
    """A number for each path of scopes, without ranks, processes and threads."""

    def __init__(self):
        self.numbers = {}
        self.steps = []

    def below(self, parent, node):
        kind = node["kind"]
        if parent is None:
            step = ("root",)
        else:
            name = node.get("name") if kind in NAMED else None
            line = node.get("line") if kind in WITH_LINE else None
            step = (kind, name or None, node.get("module"), node.get("file"), line)
        if (parent, step) not in self.numbers:
            self.numbers[parent, step] = len(self.steps)
            self.steps.append((parent, step))
        return self.numbers[parent, step]

    def text(self, path):
        steps = []
        while path is not None and len(steps) < 8:
            path, step = self.steps[path]
            steps.append(" ".join(str(part)[:40] for part in step if part is not None))
        return " < ".join(steps)


def combine(kind, a, b):
    return max(a, b) if kind == "max" else a + b


def add(costs, key, kind, value):
    if value:
        costs[key] = combine(kind, costs[key], value) if key in costs else value


def of_report(report, paths):
    """What each path costs itself, and with all below, by the place of the metric."""
    kinds = []
    for metric in report["metrics"]:
        kinds += [metric["kind"]] * metric.get("bins", 1)

    def flat(values):
        place = 0
        for metric, value in zip(report["metrics"], values):
            bins = value if "bins" in metric else [value]
            yield from ((place + number, bin) for number, bin in enumerate(bins))
            place += metric.get("bins", 1)

    at, own, inclusive = [], {}, {}
    for node in report["nodes"]:
        above = at[node["parent"]] if "parent" in node else None
        is_level = node["kind"] in LEVELS
        path = above if is_level else paths.below(above, node)
        at.append(path)
        for place, value in flat(node["exclusive"]):
            add(own, (path, place), kinds[place], value)
        for place, value in flat(node["inclusive"]) if not is_level else ():
            add(inclusive, (path, place), kinds[place], value)
    return kinds, own, inclusive


def of_engine(rows, path_of, place_of, kinds):
    costs = {}
    for node, metric, value, real in rows:
        add(costs, (path_of[node], place_of[metric]), kinds[place_of[metric]], real if value is None else value)
    return costs


def same(what, found, expected, text):
    # What is not there is 0, and sums of positive and negative numbers may be 0, too.
    wrong = [key for key in found.keys() | expected.keys() if found.get(key, 0) != expected.get(key, 0)]
    for key in sorted(wrong, key=str)[:10]:
        print(f"  {text(key)}: {found.get(key, 0)} instead of {expected.get(key, 0)}")
    if wrong or not expected:
        sys.exit(f"{what}: {len(wrong)} of {len(expected)} differ")
    print(f"{what}: {len(expected)} equal", flush=True)


def paths_of_nodes(engine, paths):
    nodes = engine.rows("SELECT id, parent, kind, name, module, file, line FROM nodes ORDER BY depth")
    path_of = {}
    for id, parent, kind, name, module, file, line in nodes:
        node = {"kind": kind, "name": name, "module": module, "file": file, "line": line}
        path_of[id] = paths.below(None if parent is None else path_of[parent], node)
    return path_of


def check_statistics(engine, directory, paths, path_of, place_of):
    rows = engine.rows("SELECT node, metric, total, real_total, mean, least, greatest, deviation, present FROM imbalance")
    ids = {place: id for id, place in place_of.items()}
    for name in sorted(name for name in os.listdir(directory) if name.startswith("statistics-")):
        with open(f"{directory}/{name}") as file:
            said = json.load(file)
        place = int(name.split("-")[1].split(".")[0])
        at, expected, twice = [], {}, set()
        for node in said["nodes"]:
            path = paths.below(at[node["parent"]] if "parent" in node else None, node)
            at.append(path)
            twice |= {path} & expected.keys()
            expected[path] = node
        found, wrong, compared = {}, [], 0
        for node, metric, total, real, mean, least, greatest, deviation, present in rows:
            if metric == ids[place]:
                path = path_of[node]
                twice |= {path} & found.keys()
                total = real if total is None else total
                found[path] = {"total": total, "mean": mean, "min": least, "max": greatest, "deviation": deviation, "present": present}
        # Of paths that are there twice, only the sums of both would be equal.
        for path, node in expected.items():
            if path in twice:
                continue
            compared += 1
            numbers = found.get(path, {})
            exact = all(numbers.get(key) == node[key] for key in ("total", "present"))
            near = lambda key: math.isclose(numbers.get(key, math.nan), node[key], rel_tol=1e-6, abs_tol=1e-6 * abs(node["max"]))
            if not exact or not all(near(key) for key in ("mean", "min", "max", "deviation")):
                wrong.append((path, numbers, node))
        for path, numbers, node in wrong[:10]:
            print(f"  {paths.text(path)}: {numbers} instead of {node}")
        what = f"statistics of {said['metric']['name']}"
        if wrong or 2 * compared < len(expected):
            sys.exit(f"{what}: {len(wrong)} of {compared} differ, of {len(expected)}")
        print(f"{what}: {compared} equal", flush=True)


def main():
    which, sql, merged, *exports = sys.argv[1:]
    queries = []
    for name in SHIPPED:
        with open(f"{sql}/{name}.sql") as file:
            queries.append((name, file.read()))
    began = time.time()
    engine = {"duckdb": DuckDB, "spark": Spark}[which]()
    try:
        compare(engine, queries, merged, exports)
    finally:
        engine.stop()
    print(f"{which}: {time.time() - began:.1f} s")


def compare(engine, queries, merged, exports):
    with open(f"{merged}/report.json") as file:
        report = json.load(file)
    paths = Paths()
    kinds, own, inclusive = of_report(report, paths)

    engine.register([f"{merged}/export"], queries)
    place_of = dict(engine.rows("SELECT id, position FROM metric WHERE kind <> 'derived'"))
    nodes_of_merged, costs_of_merged = sorted(engine.rows("SELECT * FROM nodes"), key=str), engine.rows("SELECT * FROM merge")
    engine.register(exports, queries)
    nodes, costs = sorted(engine.rows("SELECT * FROM nodes"), key=str), engine.rows("SELECT * FROM merge")
    path_of = paths_of_nodes(engine, paths)
    text = lambda key: f"{paths.text(key[0])}, metric {key[1]}"

    same("contexts by id", dict(enumerate(nodes)), dict(enumerate(nodes_of_merged)), str)
    by_id = lambda rows: {(node, metric): (value, real) for node, metric, value, real in rows}
    same("costs by id", by_id(costs), by_id(costs_of_merged), str)
    same("costs of the contexts themselves", of_engine(costs, path_of, place_of, kinds), own, text)
    found = of_engine(engine.rows("SELECT * FROM inclusive"), path_of, place_of, kinds)
    same("costs with all below", found, inclusive, text)
    check_statistics(engine, merged, paths, path_of, place_of)


main()
