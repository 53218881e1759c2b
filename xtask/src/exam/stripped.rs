//! Copies of modules without call frame information and symbols.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::Context;

/// A directory of copies.
pub struct Stripped {
    dir: PathBuf,
    stripped: Mutex<HashMap<PathBuf, PathBuf>>,
}

impl Stripped {
    /// Copies go to `dir`, which is made.
    pub fn in_directory(dir: &Path) -> anyhow::Result<Stripped> {
        std::fs::create_dir_all(dir).with_context(|| format!("failed to make {}", dir.display()))?;
        Ok(Stripped { dir: dir.to_owned(), stripped: Mutex::default() })
    }

    /// The copy of a module. One that cannot be made does not exist: the stream is answered without it.
    pub fn copy(&self, module: &Path) -> PathBuf {
        let mut stripped = self.stripped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let number = stripped.len();
        stripped
            .entry(module.to_owned())
            .or_insert_with(|| {
                let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let copy = self.dir.join(format!("{number}-{name}"));
                let mut objcopy = Command::new("objcopy");
                objcopy.arg("--strip-all");
                for section in [".eh_frame", ".eh_frame_hdr", ".debug_frame", ".gnu_debuglink", ".gnu_debugdata"] {
                    objcopy.args(["--remove-section", section]);
                }
                let done = objcopy.arg(module).arg(&copy).stdin(Stdio::null()).status();
                if !done.is_ok_and(|status| status.success()) {
                    eprintln!("objcopy makes no stripped copy of {}", module.display());
                }
                copy
            })
            .clone()
    }
}
