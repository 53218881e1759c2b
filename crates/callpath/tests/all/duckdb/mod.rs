//! Whether there is a DuckDB to ask.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

/// Whether `duckdb` runs. Where it does not, `cargo xtask test` counts the test as skipped.
pub(crate) fn is_there(test: &str) -> bool {
    let found = Command::new("duckdb").arg("-version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {test}: there is no duckdb on PATH (pip install duckdb-cli)");
        if let Some(file) = std::env::var_os("CALLPATH_SKIPPED_TESTS") {
            let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
            writeln!(file, "{test}: there is no duckdb on PATH").unwrap();
        }
    }
    found
}
