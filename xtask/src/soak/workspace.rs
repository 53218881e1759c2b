//! Where everything of a soak lies.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where everything of a soak lies.
#[derive(Debug)]
pub struct Workspace {
    /// The command that records.
    pub callpath: PathBuf,
    /// Samples a second.
    pub rate: usize,
    /// The directory of all the others.
    pub root: PathBuf,
}

impl Workspace {
    /// Programs and libraries.
    pub fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    /// The directory that a run starts in, fresh.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Where temporary files of a run go, fresh.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The measurement of a run.
    pub fn measurement(&self) -> PathBuf {
        self.root.join("measured/m.callpath")
    }

    /// What is kept of runs that failed.
    pub fn failures(&self) -> PathBuf {
        self.root.join("failures")
    }

    /// The cache of recipe tables: an ordinary user's must be its own.
    pub fn cache(&self, ordinary_user: bool) -> PathBuf {
        self.root.join(if ordinary_user { "cache-of-nobody" } else { "cache" })
    }

    /// Makes anew what each run begins with.
    pub fn fresh(&self) -> anyhow::Result<()> {
        for directory in [self.run(), self.temporary(), self.root.join("measured")] {
            crate::suite::remove_output(&directory)?;
            std::fs::create_dir_all(&directory)?;
            open_to_all(&directory)?;
        }
        Ok(())
    }
}

/// Lets every user write there.
pub fn open_to_all(directory: &Path) -> anyhow::Result<()> {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory, open).with_context(|| format!("failed to open {}", directory.display()))
}
