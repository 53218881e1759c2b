//! Where the field's programs lie, and how they are made ready: packages, files, builds.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::rows::Row;
use crate::measure::{self, Limits};
use crate::suite::prepared::{PROGRAM_DIRECTORIES, Prepared, Stdin, installed, write};
use crate::suite::recorders::{Recorder, remove};
use crate::{build, install};

/// What building one program may take, with what it fetches.
const BUILD_LIMITS: Limits = Limits { wall: Duration::from_secs(900), memory_bytes: 8 << 30 };

/// `target/field`, and the packages that could not be installed.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    lacking: Vec<&'static str>,
}

impl Workspace {
    /// Installs the Debian packages of some programs.
    pub fn for_programs(rows: &[&'static Row], recorders: &[Recorder]) -> anyhow::Result<Workspace> {
        let mut wanted: Vec<&'static str> = rows.iter().flat_map(|row| row.packages).copied().collect();
        if recorders.contains(&Recorder::PerfFp) {
            wanted.push("linux-perf");
        }
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Workspace { root: build::root().join("target/field"), lacking: install::packages_or_commands(&wanted)? })
    }

    /// A program's own directory.
    pub fn directory(&self, row: &Row) -> PathBuf {
        self.root.join(row.name)
    }

    /// Builds a program, unless it has been built in the same way before.
    pub fn prepare(&self, row: &Row) -> anyhow::Result<Prepared> {
        let directory = self.directory(row);
        let generated_inputs: Vec<(&str, Vec<u8>)> =
            row.generated_inputs.iter().map(|(name, maker)| (*name, maker())).collect();
        let (as_built, recipe) = (directory.join("as-built"), recipe(row, &generated_inputs));
        if std::fs::read_to_string(&as_built).is_ok_and(|built| built == recipe) {
            return words(row, &directory);
        }
        remove(&directory)?;
        std::fs::create_dir_all(&directory).with_context(|| format!("failed to make {}", directory.display()))?;
        for (name, content) in row.files {
            if let Some(parent) = Path::new(name).parent() {
                std::fs::create_dir_all(directory.join(parent))?;
            }
            write(&directory, name, content)?;
        }
        for (name, content) in &generated_inputs {
            write(&directory, name, content)?;
        }
        let built = built(row, &directory).and_then(|()| words(row, &directory));
        let lacking: Vec<&str> = row.packages.iter().copied().filter(|name| self.lacking.contains(name)).collect();
        let prepared = if lacking.is_empty() {
            built?
        } else {
            built.with_context(|| format!("cannot install {}", lacking.join(" ")))?
        };
        write(&directory, "as-built", recipe)?;
        Ok(prepared)
    }
}

/// All that decides what is built.
fn recipe(row: &Row, generated_inputs: &[(&str, Vec<u8>)]) -> String {
    let files: String = row.files.iter().map(|(name, content)| format!("{name}:\n{content}\n")).collect();
    let hash = |content: &Vec<u8>| {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        hasher.finish()
    };
    let generated_inputs: String =
        generated_inputs.iter().map(|(name, content)| format!("{name}: {:x}\n", hash(content))).collect();
    format!("{files}{generated_inputs}{}\n", row.build)
}

fn built(row: &Row, directory: &Path) -> anyhow::Result<()> {
    if row.build.is_empty() {
        return Ok(());
    }
    eprintln!("{}: building ...", row.name);
    let log = directory.join("build.log");
    let file = std::fs::File::create(&log)?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-ec", row.build]).current_dir(directory).envs(environment(row)?).stdin(Stdio::null());
    shell.stdout(file.try_clone()?).stderr(file);
    let built = measure::run_well_within(&mut shell, BUILD_LIMITS);
    let said = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    built.with_context(|| format!("failed to build it: {}", last.trim()))?;
    Ok(())
}

fn words(row: &Row, directory: &Path) -> anyhow::Result<Prepared> {
    let Some((first, rest)) = row.run.split_first() else { bail!("no program is named") };
    let mut prepared = if first.contains('/') {
        let program = directory.join(first);
        ensure!(program.exists(), "{} is not there", program.display());
        let arguments = rest.iter().map(|word| (*word).to_owned()).collect();
        Prepared { program, arguments, environment: vec![], stdin: Stdin::Nothing }
    } else {
        installed(first, rest)?
    };
    prepared.environment = environment(row)?;
    if let Some(file) = row.stdin {
        prepared.stdin = Stdin::File(directory.join(file));
    }
    Ok(prepared)
}

/// Debian's programs, and the toolchain that builds this project, whatever a user has put before them; a port of the
/// loopback interface on which no program listens.
fn environment(row: &Row) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut path = PROGRAM_DIRECTORIES.join(":");
    if let Some(toolchain) = std::env::var_os("CARGO").as_deref().and_then(|cargo| Path::new(cargo).parent()) {
        path = format!("{}:{path}", toolchain.display());
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut all = vec![("PATH", path), ("LC_ALL", "C.UTF-8".to_owned()), ("FIELD_PORT", port.to_string())];
    all.extend(row.environment.iter().map(|(name, value)| (*name, (*value).to_owned())));
    Ok(all)
}
