//! samply, as a recorder to compare with. It is not packaged in Debian; it is installed as a crate. Even as root it needs
//! `kernel.perf_event_paranoid` at 1 or below.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::recorders::{Stacks, begins_stack};
use crate::build;

const VERSION: &str = "0.13.1";

/// Installs it below `target/samply`, if it is not there.
pub fn install() -> anyhow::Result<()> {
    if installed().is_ok() {
        return Ok(());
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "samply", "--locked", "--quiet", "--version", VERSION, "--root"]).arg(root());
    let status = cargo.status().context("failed to run cargo")?;
    ensure!(status.success(), "failed to install samply: cargo ended with {status}");
    Ok(())
}

/// The command, of the version that is compared with.
pub fn installed() -> anyhow::Result<PathBuf> {
    let command = root().join("bin/samply");
    let said = Command::new(&command).arg("--version").output();
    let said = said.with_context(|| format!("failed to run {}", command.display()))?;
    let version = String::from_utf8_lossy(&said.stdout);
    ensure!(version.trim().ends_with(VERSION), "{} is samply {version}, not {VERSION}", command.display());
    Ok(command)
}

fn root() -> PathBuf {
    build::root().join("target/samply")
}

/// What a recording says of its stacks. samply has no word for a whole one: here it is one whose outermost two frames hold a start of a
/// program or thread.
pub fn stacks(output: &Path) -> anyhow::Result<Stacks> {
    let start = Instant::now();
    let read = |path: &Path| -> anyhow::Result<Value> {
        let bytes = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("failed to read the JSON of {}", path.display()))
    };
    let profile = read(output)?;
    let names = output.with_extension("syms.json");
    let symbols = Symbols::of(&read(&names)?);
    std::fs::remove_file(&names).with_context(|| format!("failed to remove {}", names.display()))?;
    let libs = list(&profile["libs"]);
    let mut stacks = Stacks { report_seconds: start.elapsed().as_secs_f64(), ..Stacks::default() };
    for thread in list(&profile["threads"]) {
        let column = |table: &str, column: &str| list(&thread[table][column]);
        let (prefixes, frames) = (column("stackTable", "prefix"), column("stackTable", "frame"));
        let (addresses, functions) = (column("frameTable", "address"), column("frameTable", "func"));
        let (resources, of_libs) = (column("funcTable", "resource"), column("resourceTable", "lib"));
        let name_of = |stack: usize| {
            let frame = index(frames, stack)?;
            let lib = index(of_libs, index(resources, index(functions, frame)?)?)?;
            symbols.name(libs.get(lib)?["codeId"].as_str()?, addresses.get(frame)?.as_u64()?)
        };
        for stack in column("samples", "stack") {
            stacks.taken += 1;
            // The outermost two.
            let (mut outer, mut at) = ([None, None], stack.as_u64().map(|stack| stack as usize));
            while let Some(stack) = at {
                outer = [Some(stack), outer[0]];
                at = index(prefixes, stack);
            }
            let names = outer.into_iter().flatten().filter_map(name_of);
            // It drops an underscore that a name begins with.
            stacks.whole +=
                u64::from(names.into_iter().any(|name| begins_stack(name) || begins_stack(&format!("_{name}"))));
        }
    }
    Ok(stacks)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn index(column: &[Value], at: usize) -> Option<usize> {
    column.get(at)?.as_u64().map(|index| index as usize)
}

/// The names that samply has written beside the profile.
struct Symbols {
    /// By the file's build-id and an address in it.
    names: BTreeMap<(String, u64), String>,
}

impl Symbols {
    fn of(file: &Value) -> Symbols {
        let text = list(&file["string_table"]);
        let mut names = BTreeMap::new();
        for lib in list(&file["data"]) {
            let table = list(&lib["symbol_table"]);
            for known in list(&lib["known_addresses"]) {
                let found = known[0].as_u64().zip(known[1].as_u64().and_then(|symbol| table.get(symbol as usize)));
                let Some((address, symbol)) = found else { continue };
                let name = symbol["symbol"].as_u64().and_then(|name| text.get(name as usize)?.as_str());
                if let (Some(name), Some(id)) = (name, lib["code_id"].as_str()) {
                    names.insert((id.to_owned(), address), name.to_owned());
                }
            }
        }
        Symbols { names }
    }

    fn name(&self, id: &str, address: u64) -> Option<&str> {
        self.names.get(&(id.to_owned(), address)).map(String::as_str)
    }
}
