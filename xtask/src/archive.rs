//! Debian's archive by apt with lists of its own, which leaves the machine's alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// A directory with apt's lists of one suite.
pub struct Archive {
    place: PathBuf,
}

impl Archive {
    /// Fetches the lists of a suite into `place`; `kind` is `deb` or `deb-src`. Fails where apt-get does.
    pub fn at(place: &Path, suite: &str, kind: &str) -> anyhow::Result<Archive> {
        for directory in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(place.join(directory))?;
        }
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let source = format!("{kind} [signed-by={keys}] {} {suite} main\n", archive()?);
        std::fs::write(place.join("sources.list"), source)?;
        let archive = Archive { place: place.to_owned() };
        archive.apt_get(&["-q", "update"])?;
        Ok(archive)
    }

    /// Runs apt-get with these lists, in the directory. Fails with its words.
    pub fn apt_get(&self, words: &[&str]) -> anyhow::Result<()> {
        let at = |name: &str| self.place.join(name).display().to_string();
        let mut command = Command::new("apt-get");
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        passes(command.args(words).current_dir(&self.place))
    }
}

/// The address of the archive from which this machine gets its packages.
fn archive() -> anyhow::Result<String> {
    let asked = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
    let said = Command::new("apt-get").args(asked).output().context("failed to start apt-get")?;
    let places = String::from_utf8_lossy(&said.stdout).into_owned();
    // Others are those of security updates.
    let archive = places.lines().find(|place| place.trim_end_matches('/').ends_with("/debian"));
    Ok(archive.context("apt-get knows no archive of Debian: add one to its sources")?.to_owned())
}

/// Runs a command that must succeed. The error is its standard error.
pub fn passes(command: &mut Command) -> anyhow::Result<()> {
    let said = command.output().with_context(|| format!("failed to start {command:?}"))?;
    ensure!(said.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said.stderr).trim());
    Ok(())
}
