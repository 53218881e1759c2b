//! cargo: how it is run, what it builds and where it puts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::arguments::Arguments;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

/// cargo, run in the repository's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Set by `cargo run` for xtask; they would make a nested cargo build everything anew.
    for (name, _) in std::env::vars_os() {
        if let Some(text) = name.to_str()
            && (text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// The manifests of crates outside the workspace that are checked nevertheless: the objects that run inside of programs.
pub const OBJECT_MANIFESTS: [&str; 2] = ["crates/callpath-preload/Cargo.toml", "crates/callpath-inject/Cargo.toml"];

/// `cargo metadata` of a manifest; `extra` are further arguments.
pub fn metadata(manifest: &str, extra: &[&str]) -> anyhow::Result<Value> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest])
        .args(extra)
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata of {manifest} failed");
    serde_json::from_slice(&output.stdout).context("failed to read what cargo metadata says")
}

/// How tests and lints are compiled: as [`Profile::Quick`].
pub const TESTED: [&str; 3] = ["--locked", "--profile", "quick"];

/// The profiles of `Cargo.toml` in which the command is built.
#[derive(Clone, Copy, Debug)]
pub enum Profile {
    /// As installed: linked as a whole, in a minute or more.
    Release,
    /// For working on callpath and for its tests: as optimized, but linked in seconds, with checks.
    Quick,
}

/// What a build of the `callpath` package left behind.
#[derive(Debug)]
pub struct Built {
    /// The command.
    pub callpath: PathBuf,
    /// The object that its build script made and embedded, to be preloaded.
    pub preload: PathBuf,
    /// The same, to be injected.
    pub inject: PathBuf,
}

/// The command that `--callpath FILE` names (an older build to compare with, say), or a release build.
pub fn command(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    match arguments.text("callpath") {
        Some(file) => std::path::absolute(file).with_context(|| format!("failed to find {file}")),
        None => Ok(release()?.callpath),
    }
}

/// Builds the command in release mode. Fails where cargo does; its words go to standard error.
pub fn release() -> anyhow::Result<Built> {
    callpath(Profile::Release)
}

/// Builds the command with a profile. Fails where cargo does; its words go to standard error.
pub fn callpath(profile: Profile) -> anyhow::Result<Built> {
    let profile = match profile {
        Profile::Release => "release",
        Profile::Quick => "quick",
    };
    let output = cargo()
        .args(["build", "--profile", profile, "--locked", "--package", "callpath"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run cargo build")?;
    ensure!(output.status.success(), "cargo build --profile {profile} --package callpath failed");
    let (mut callpath, mut preload, mut inject) = (None, None, None);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let of_callpath = message["package_id"].as_str().is_some_and(|id| id.contains("/callpath#"));
        match message["reason"].as_str() {
            Some("compiler-artifact") if of_callpath => {
                callpath = message["executable"].as_str().map(PathBuf::from).or(callpath);
            }
            Some("build-script-executed") if of_callpath => {
                let object = |name| variable(&message["env"], name).map(PathBuf::from);
                preload = object("CALLPATH_PRELOAD_OBJECT").or(preload);
                inject = object("CALLPATH_INJECT_OBJECT").or(inject);
            }
            _ => {}
        }
    }
    Ok(Built {
        callpath: callpath.context("cargo names no executable of package callpath")?,
        preload: preload.context("the build script of callpath does not name CALLPATH_PRELOAD_OBJECT")?,
        inject: inject.context("the build script of callpath does not name CALLPATH_INJECT_OBJECT")?,
    })
}

/// The value of a variable that a build script sets for rustc, from pairs of name and value.
fn variable<'a>(pairs: &'a Value, name: &str) -> Option<&'a str> {
    pairs.as_array()?.iter().find(|pair| pair[0].as_str() == Some(name))?[1].as_str()
}
