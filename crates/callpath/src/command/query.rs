//! `callpath query`: SQL over the tables of measurements, by the user's own DuckDB.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use callpath_parquet::TABLES;
use callpath_parquet::shipped::{SHIPPED, Shipped};
use serde_json::Value;

use super::export::tables;
use crate::outcome::{Failure, Outcome};
use crate::{interrupt, output};

/// The schema of the JSON (docs/formats.md).
const SCHEMA: u32 = 1;

/// The program that answers.
const ENGINE: &str = "duckdb";

#[derive(clap::Args)]
#[command(
    override_usage = "callpath query [--json] [INPUT]... SQL\n       callpath query --list\n       callpath query --print NAME"
)]
pub(crate) struct Arguments {
    /// Measurements, databases and directories that `export --format parquet` wrote [default: the newest *.callpath here]; then a
    /// SQL statement over node, value, metric, profile, module, function and file (docs/engines.md), and over what --list lists
    #[arg(value_name = "SQL", required_unless_present_any = ["list", "print"])]
    words: Vec<OsString>,
    /// Print rows as JSON (docs/formats.md)
    #[arg(long, conflicts_with_all = ["list", "print"])]
    json: bool,
    /// List the queries that callpath brings; a statement may name them as tables
    #[arg(long, conflicts_with = "words")]
    list: bool,
    /// Print the SQL of such a query, for another engine
    #[arg(long, value_name = "NAME", conflicts_with_all = ["words", "list"])]
    print: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.list {
        list()?;
        return Ok(0);
    }
    if let Some(name) = &arguments.print {
        print(name)?;
        return Ok(0);
    }
    let Some((sql, inputs)) = arguments.words.split_last() else {
        return Err(anyhow::anyhow!("what is asked? Name an input and a SQL statement").into());
    };
    if Path::new(sql).exists() {
        let path = Path::new(sql).display();
        return Err(anyhow::anyhow!("{path} is an input; behind the inputs stands a SQL statement").into());
    }
    let inputs: Vec<&Path> = inputs.iter().map(Path::new).collect();
    find_engine()?;
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let script = prepare(directory.path(), &inputs)?;
    // The engine gets the signals, too, and ends by them.
    interrupt::catch();
    let mut engine = Command::new(ENGINE);
    // The user's own settings are for another day.
    engine.args(["-init", "/dev/null", "-batch", "-bail", "-c"]).arg(format!(".read {}", quoted(&script)?));
    match arguments.json {
        true => answer_in_json(engine.arg("-json"), sql),
        false => {
            let ended = engine.arg("-c").arg(sql).status().context("failed to run duckdb")?;
            Ok(status(ended.code()))
        }
    }
}

/// Why duckdb ended is on standard error; a signal was ours, too.
fn status(code: Option<i32>) -> u8 {
    match (code, interrupt::caught()) {
        (Some(0), _) => 0,
        (_, Some(signal)) => 128 + signal,
        _ => 1,
    }
}

fn answer_in_json(engine: &mut Command, sql: &OsStr) -> Outcome {
    let answer = engine.arg("-c").arg(sql).stderr(std::process::Stdio::inherit()).output();
    let answer = answer.context("failed to run duckdb")?;
    if !answer.status.success() {
        return Ok(status(answer.status.code()));
    }
    // Its numbers stay as it wrote them.
    let rows = match answer.stdout.trim_ascii() {
        b"" => "[]",
        rows => std::str::from_utf8(rows).context("duckdb's answer is no text")?,
    };
    let is_rows = serde_json::from_str(rows).is_ok_and(|rows: Value| rows.is_array());
    if !is_rows {
        let why = "duckdb's answer is not one list of rows: ask for one, without NaN and infinite numbers";
        return Err(anyhow::anyhow!(why).into());
    }
    let mut out = output::stdout();
    writeln!(out, "{{\"schema\":{SCHEMA},\"kind\":\"query\",\"rows\":{rows}}}")?;
    out.flush()?;
    Ok(0)
}

fn find_engine() -> anyhow::Result<()> {
    match Command::new(ENGINE).arg("-version").output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => anyhow::bail!(
            "there is no program duckdb, which answers queries: install it (duckdb.org, or `pip install duckdb-cli`), or ask another engine (docs/engines.md)"
        ),
        Err(error) => Err(error).context("failed to run duckdb"),
    }
}

/// Exports what is no export yet; a script that names all tables, and the queries that callpath brings.
fn prepare(directory: &Path, inputs: &[&Path]) -> Result<PathBuf, Failure> {
    let newest: [Option<&Path>; 1] = [None];
    let inputs: Vec<Option<&Path>> = match inputs {
        [] => newest.to_vec(),
        inputs => inputs.iter().map(|input| Some(*input)).collect(),
    };
    for (number, input) in inputs.iter().enumerate() {
        // By numbers: patterns in a path of the user's would be one to DuckDB.
        let place = directory.join(number.to_string());
        match input.filter(|input| is_export(input)) {
            Some(export) => symlink(std::path::absolute(export)?, &place)?,
            None => drop(tables::write(*input, &place)?),
        }
    }
    let script = directory.join("tables.sql");
    std::fs::write(&script, views(directory, inputs.len())?).context("failed to write a temporary file")?;
    Ok(script)
}

/// Whether a directory is one that `export --format parquet` wrote.
fn is_export(path: &Path) -> bool {
    TABLES.iter().all(|table| path.join(format!("{}.parquet", table.name)).is_file())
}

fn views(directory: &Path, exports: usize) -> anyhow::Result<String> {
    let mut script = String::new();
    for table in TABLES {
        let name = table.name;
        let file = |number: usize| quoted(&directory.join(format!("{number}/{name}.parquet")));
        let files = (0..exports).map(file).collect::<anyhow::Result<Vec<String>>>()?;
        writeln!(script, "CREATE VIEW {name} AS SELECT * FROM read_parquet([{}]);", files.join(", "))?;
    }
    for Shipped { name, sql, .. } in SHIPPED {
        writeln!(script, "CREATE VIEW {name} AS\n{sql};")?;
    }
    Ok(script)
}

/// A path as SQL's texts are written.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().context("the path of the temporary directory is no text")?;
    Ok(format!("'{}'", text.replace('\'', "''")))
}

fn list() -> anyhow::Result<()> {
    let mut out = output::stdout();
    for Shipped { name, about, .. } in SHIPPED {
        writeln!(out, "{name:<10} {about}")?;
    }
    Ok(out.flush()?)
}

fn print(name: &str) -> anyhow::Result<()> {
    let names: Vec<&str> = SHIPPED.iter().map(|query| query.name).collect();
    let found = SHIPPED.iter().find(|query| query.name == name);
    let found = found.with_context(|| format!("there is no query {name}; there are {}", names.join(", ")))?;
    let mut out = output::stdout();
    out.write_all(found.sql.as_bytes())?;
    Ok(out.flush()?)
}
