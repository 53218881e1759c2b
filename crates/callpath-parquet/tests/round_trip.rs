//! What is written is read back, without an engine: ids, parents and totals are the database's, and rows of several exports, added up
//! by their ids, are those of the merged database.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use callpath_db::database::{Database, DatabaseError, Source, merge};
use callpath_db::{Metric, MetricType, NodeId, Profile, RunInfo, Scope, ScopeKind};
use callpath_parquet::{ExportError, NewTables, TABLES};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, RowAccessor};

type Row = BTreeMap<String, Field>;

struct InMemory(Vec<u8>);

impl Source for InMemory {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::of_bytes(self.0.clone(), Path::new("input"))
    }
}

/// Random paths of few procedures, loops and lines, by two threads of a process, with metrics of each kind.
fn random_profile(seed: u64) -> Profile {
    let mut random = fastrand::Rng::with_seed(seed);
    let real = Metric { value: MetricType::Real, ..Metric::sum("energy", "joules") };
    let signed = Metric { value: MetricType::Signed, ..Metric::sum("balance", "bytes") };
    let mut metrics = vec![Metric::sum("cost", "count"), Metric::max("peak", "bytes"), real, signed];
    metrics.push(Metric::min("shortest", "ns"));
    if seed % 3 == 1 {
        // Two equal metrics are two columns, also in what is merged.
        metrics.insert(0, Metric::sum("cost", "count"));
    }
    let mut profile = Profile::new(metrics);
    profile.info = RunInfo { host: format!("host {seed}"), program: "app".into(), ..RunInfo::default() };
    let app = profile.strings.intern("app");
    let process = profile.tree.child(NodeId::ROOT, Scope::process(app, 0, 7));
    for _ in 0..60 {
        let thread = Scope { discriminator: random.u64(1..3), ..Scope::new(ScopeKind::Thread, app) };
        let mut node = profile.tree.child(process, thread);
        for _ in 0..random.usize(..8) {
            let number = random.u32(..4);
            let name = profile.strings.intern(&format!("größe_{number}"));
            let scope = match random.u8(..3) {
                0 => Scope {
                    line: Some(number),
                    address: Some(!0),
                    ..Scope::new(ScopeKind::Loop, callpath_db::Name::EMPTY)
                },
                1 => Scope { line: Some(seed as u32), module: Some(app), ..Scope::new(ScopeKind::Procedure, name) },
                _ => Scope { line: Some(number), file: Some(name), ..Scope::new(ScopeKind::Inlined, name) },
            };
            node = profile.tree.child(node, scope);
        }
        let values: Vec<u64> = profile
            .metrics
            .iter()
            .map(|metric| match metric.value {
                MetricType::Real => (random.f64() * 8.0).floor().to_bits(),
                MetricType::Signed => random.i64(-50..50) as u64,
                _ => random.u64(..1 << 40),
            })
            .collect();
        profile.tree.add(node, &values);
    }
    profile
}

fn database(profile: &Profile) -> Database {
    Database::of_bytes(profile.to_database().expect("a database"), Path::new("input")).expect("a database")
}

/// The rows of each table of an export.
fn exported(database: &Database) -> BTreeMap<&'static str, Vec<Row>> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tables");
    let written = NewTables::create(&path).and_then(|tables| tables.write(database, |_| true)).expect("an export");
    let mut len_bytes = 0;
    let read = |table: &'static callpath_parquet::Table| {
        let file = File::open(path.join(format!("{}.parquet", table.name))).expect("a table");
        len_bytes += file.metadata().expect("a length").len();
        let reader = SerializedFileReader::new(file).expect("Parquet");
        let rows = reader.get_row_iter(None).expect("rows");
        let row =
            |row: Result<parquet::record::Row, _>| row.expect("a row").into_columns().into_iter().collect::<Row>();
        (table.name, rows.map(row).collect::<Vec<Row>>())
    };
    let tables: BTreeMap<_, _> = TABLES.into_iter().map(read).collect();
    assert_eq!(written.len_bytes, len_bytes);
    assert_eq!((written.contexts as usize, written.facts as usize), (tables["node"].len(), tables["value"].len()));
    tables
}

fn integer(row: &Row, column: &str) -> i64 {
    match row[column] {
        Field::Long(value) => value,
        ref other => panic!("{column}: {other:?}"),
    }
}

/// By node and metric: what `value`s or `real`s come to.
fn costs<'a>(
    tables: impl IntoIterator<Item = &'a BTreeMap<&'static str, Vec<Row>>>,
) -> BTreeMap<(i64, i64), (i64, f64)> {
    let mut costs = BTreeMap::new();
    for table in tables {
        let kinds: BTreeMap<i64, &Field> =
            table["metric"].iter().map(|row| (integer(row, "id"), &row["kind"])).collect();
        for row in &table["value"] {
            let metric = integer(row, "metric");
            let (value, real) = match (&row["value"], &row["real"]) {
                (Field::Long(value), Field::Null) => (*value, 0.0),
                (Field::Null, Field::Double(real)) => (0, *real),
                other => panic!("{other:?}"),
            };
            let cost: &mut (i64, f64) = costs.entry((integer(row, "node"), metric)).or_default();
            *cost = match kinds[&metric] {
                Field::Str(kind) if kind == "max" => (cost.0.max(value), real),
                Field::Str(kind) if kind == "min" && cost.0 != 0 => (cost.0.min(value), real),
                _ => (cost.0 + value, cost.1 + real),
            };
        }
    }
    costs.retain(|_, cost| *cost != (0, 0.0));
    costs
}

/// The same of a database, by its own code.
fn costs_of(database: &Database, metrics: &[Row]) -> BTreeMap<(i64, i64), (i64, f64)> {
    let content = database.content().expect("contexts");
    let mut bits: BTreeMap<(i64, usize), u64> = BTreeMap::new();
    for entry in database.profiles() {
        for (metric, facts) in database.values(entry).expect("values") {
            let rule = database.metrics()[metric as usize].rule();
            for (place, value) in facts {
                let key = (content.context(place as usize).id as i64, metric as usize);
                bits.entry(key).and_modify(|sum| *sum = rule.combine(*sum, value)).or_insert(value);
            }
        }
    }
    bits.retain(|_, bits| *bits != 0);
    let cost = |((node, metric), bits): ((i64, usize), u64)| {
        let is_real = database.metrics()[metric].value == MetricType::Real;
        let cost = if is_real { (0, f64::from_bits(bits)) } else { (bits as i64, 0.0) };
        ((node, integer(&metrics[metric], "id")), cost)
    };
    bits.into_iter().map(cost).collect()
}

#[test]
fn the_tree_is_there_with_its_ids() {
    for seed in 0..20 {
        let database = database(&random_profile(seed));
        let (tables, content) = (exported(&database), database.content().expect("contexts"));
        let nodes = &tables["node"];
        for (place, row) in nodes.iter().enumerate() {
            let context = content.context(place);
            assert_eq!(integer(row, "place"), place as i64);
            assert_eq!(integer(row, "id"), context.id as i64);
            assert_eq!(integer(row, "last") + 1, i64::from(context.end));
            let scope = &content.scopes()[context.scope as usize];
            assert_eq!(row["kind"], Field::Str(scope.kind.word().into()));
            match context.parent {
                None => assert_eq!((place, &row["parent"], integer(row, "depth")), (0, &Field::Null, 0)),
                Some(parent) => {
                    let above = &nodes[parent as usize];
                    assert_eq!(integer(row, "parent"), integer(above, "id"));
                    assert_eq!(integer(row, "depth"), integer(above, "depth") + 1);
                    assert!(integer(above, "last") >= integer(row, "last"));
                }
            }
            let function = tables["function"].iter().find(|function| function["id"] == row["function"]);
            let name = function.map_or(Field::Str(String::new()), |function| function["name"].clone());
            assert_eq!(name, Field::Str(content.text(scope.name).into()));
        }
        assert_eq!(costs([&tables]), costs_of(&database, &tables["metric"]));
    }
}

#[test]
fn exports_added_up_by_id_are_the_merged_database() {
    for seed in 0..20 {
        let parts: Vec<Profile> = (0..3).map(|part| random_profile(3 * seed + part)).collect();
        let inputs: Vec<InMemory> =
            parts.iter().map(|part| InMemory(part.to_database().expect("a database"))).collect();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("all");
        merge(&inputs, &path, |_| {}).expect("a merge");
        let all = Database::open(&path).expect("a database");
        let of_all = exported(&all);
        let of_parts: Vec<_> = parts.iter().map(|part| exported(&database(part))).collect();
        assert_eq!(costs(&of_parts), costs_of(&all, &of_all["metric"]));
        let column = |tables: &[BTreeMap<&str, Vec<Row>>], table: &str, column: &str| -> BTreeSet<i64> {
            tables.iter().flat_map(|tables| &tables[table]).map(|row| integer(row, column)).collect()
        };
        let of_all = [of_all];
        for (table, name) in [
            ("node", "id"),
            ("function", "id"),
            ("module", "id"),
            ("file", "id"),
            ("metric", "id"),
            ("profile", "id"),
            ("profile", "run"),
        ] {
            assert_eq!(column(&of_parts, table, name), column(&of_all, table, name), "{table}.{name}");
        }
        // Threads of different recordings are different ones, and so are exports.
        let profiles: usize = of_parts.iter().map(|tables| tables["profile"].len()).sum();
        assert_eq!(column(&of_parts, "profile", "id").len(), profiles);
        assert_eq!(column(&of_parts, "node", "export").len(), 3);
    }
}

#[test]
fn an_input_that_is_merged_twice_has_two_profiles() {
    let one = random_profile(1).to_database().expect("a database");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("all");
    merge(&[InMemory(one.clone()), InMemory(one)], &path, |_| {}).expect("a merge");
    let tables = exported(&Database::open(&path).expect("a database"));
    let ids: BTreeSet<i64> = tables["profile"].iter().map(|row| integer(row, "id")).collect();
    assert_eq!((ids.len(), tables["profile"].len()), (4, 4));
}

#[test]
fn a_database_of_nothing_has_all_tables_and_a_root() {
    let tables = exported(&database(&Profile::new(vec![Metric::sum("cost", "count")])));
    let lens: Vec<(&str, usize)> = tables.iter().map(|(name, rows)| (*name, rows.len())).collect();
    let expected =
        [("file", 0), ("function", 0), ("metric", 1), ("module", 0), ("node", 1), ("profile", 0), ("value", 0)];
    assert_eq!(lens, expected);
}

#[test]
fn names_come_back_as_they_were() {
    let names = ["größe::<日本語>", "it's \"quoted\"\n\t\0\u{1b}[31m", &"huge::".repeat(1 << 18), " ", "\u{1F980}"];
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    for name in names {
        let name = profile.strings.intern(name);
        let scope = Scope { module: Some(name), file: Some(name), ..Scope::new(ScopeKind::Procedure, name) };
        let node = profile.tree.child(NodeId::ROOT, scope);
        profile.tree.add(node, &[1]);
    }
    let tables = exported(&database(&profile));
    for table in ["function", "module", "file"] {
        let found: BTreeSet<&str> = tables[table]
            .iter()
            .map(|row| match &row["name"] {
                Field::Str(name) => name.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, names.into_iter().collect(), "{table}");
    }
}

#[test]
fn values_are_exact_up_to_what_an_integer_holds() {
    let with = |value: u64| {
        let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
        let name = profile.strings.intern("main");
        let node = profile.tree.child(NodeId::ROOT, Scope::new(ScopeKind::Procedure, name));
        profile.tree.add(node, &[value]);
        database(&profile)
    };
    let tables = exported(&with(i64::MAX as u64));
    assert_eq!(integer(&tables["value"][0], "value"), i64::MAX);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tables");
    let error = NewTables::create(&path).expect("a directory").write(&with(1 << 63), |_| true).expect_err("too large");
    assert!(matches!(error, ExportError::TooLarge { value, .. } if value == 1 << 63), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

/// More than one group of rows, and a dictionary (of the values) that grows too large.
#[test]
fn a_large_tree_is_written_in_groups() {
    const CONTEXTS: u64 = 70_000;
    let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
    let mut random = fastrand::Rng::with_seed(1);
    let name = profile.strings.intern("main");
    let mut total = 0;
    for thread in 0..16 {
        let scope = Scope { discriminator: thread + 1, ..Scope::new(ScopeKind::Thread, name) };
        let thread = profile.tree.child(NodeId::ROOT, scope);
        let mut node = thread;
        for number in 0..CONTEXTS {
            let above = if number % 100 == 0 { thread } else { node };
            let scope = Scope { discriminator: number, ..Scope::new(ScopeKind::Procedure, name) };
            node = profile.tree.child(above, scope);
            let value = random.u64(1..1 << 30);
            total += value;
            profile.tree.add(node, &[value]);
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tables");
    let tables = NewTables::create(&path).expect("a directory");
    let written = tables.write(&database(&profile), |_| true).expect("an export");
    assert_eq!((written.contexts, written.facts, written.profiles), (CONTEXTS + 1, 16 * CONTEXTS, 16));
    // By the places of the columns: rows with names would take a minute.
    let column = |table: &str, column: usize| -> Vec<i64> {
        let file = File::open(path.join(format!("{table}.parquet"))).expect("a table");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        assert!(reader.num_row_groups() > 1, "{table}");
        let row = |row: Result<parquet::record::Row, _>| row.expect("a row").get_long(column).expect("an integer");
        reader.get_row_iter(None).expect("rows").map(row).collect()
    };
    assert_eq!(column("value", 4).iter().sum::<i64>() as u64, total);
    let ids: BTreeSet<i64> = column("node", 1).into_iter().collect();
    assert_eq!(ids.len() as u64, CONTEXTS + 1);
    assert!(column("value", 2).iter().all(|node| ids.contains(node)));
}

#[test]
fn nothing_is_overwritten_and_nothing_half_remains() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tables");
    let database = database(&random_profile(1));
    let listed = || -> Vec<String> {
        let entries = std::fs::read_dir(directory.path()).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    };
    let interrupted = NewTables::create(&path).expect("a directory").write(&database, |_| false);
    assert!(matches!(interrupted, Err(ExportError::Interrupted { .. })));
    assert!(listed().is_empty());
    // One that comes meanwhile stays, also if it is empty.
    let tables = NewTables::create(&path).expect("a directory");
    std::fs::create_dir(&path).expect("theirs");
    let error = tables.write(&database, |_| true).expect_err("there already");
    assert!(matches!(error, ExportError::Database(DatabaseError::Exists { .. })), "{error}");
    assert!(matches!(NewTables::create(&path), Err(ExportError::Database(DatabaseError::Exists { .. }))));
    assert_eq!(listed(), ["tables"]);
    assert_eq!(std::fs::read_dir(&path).expect("a directory").count(), 0);
}
