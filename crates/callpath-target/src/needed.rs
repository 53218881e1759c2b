//! The libraries that a program would be started with, as its own dynamic loader finds them.
//! It does not search as a loader does: it asks the loader.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::TargetError;

/// A library that a program needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needed {
    /// What it is asked for by.
    pub name: String,
    /// Where it was found; `None`: nowhere.
    pub path: Option<PathBuf>,
}

/// Runs the program's dynamic loader, as ldd does, to list what it would load, in its order and itself included. The
/// program does not run. `None` if what the program names as its loader does not look like one, and is not run.
pub fn needed_libraries(loader: &Path, program: &Path) -> Result<Option<Vec<Needed>>, TargetError> {
    if !loader.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld")) {
        return Ok(None);
    }
    let failed = |source| TargetError::Launch { program: loader.to_owned(), source };
    // A name without a slash would be looked for among the libraries.
    let program = if program.components().count() > 1 { program.to_owned() } else { Path::new(".").join(program) };
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::piped());
    let said = command.output().map_err(failed)?;
    let text = String::from_utf8_lossy(&said.stdout);
    let mut list: Vec<Needed> = text.lines().filter_map(parse_line).collect();
    // musl's loader is its C library, too.
    let mut seen = Vec::new();
    list.retain(|needed| match &needed.path {
        Some(path) if seen.contains(path) => false,
        path => {
            seen.extend(path.clone());
            true
        }
    });
    if list.is_empty() && !said.status.success() && !text.contains("statically linked") {
        return Err(failed(std::io::Error::other(String::from_utf8_lossy(&said.stderr).trim().to_owned())));
    }
    Ok(Some(list))
}

/// `libc.so.6 => /lib/libc.so.6 (0x7f...)`, `/lib64/ld.so (0x7f...)`, `libx.so => not found`. The vdso has no file.
fn parse_line(line: &str) -> Option<Needed> {
    let line = line.trim();
    let without_address = |place: &str| place.rsplit_once(" (0x").map_or(place, |(path, _)| path).trim().to_owned();
    match line.split_once(" => ") {
        Some((name, place)) if place.starts_with('/') => {
            Some(Needed { name: name.to_owned(), path: Some(without_address(place).into()) })
        }
        Some((name, place)) if place.contains("not found") => Some(Needed { name: name.to_owned(), path: None }),
        None if line.starts_with('/') => {
            let path = without_address(line);
            Some(Needed { name: path.clone(), path: Some(path.into()) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_glibc_and_musl_write_them() {
        let found = |line: &str| parse_line(line).map(|n| (n.name, n.path.map(|p| p.display().to_string())));
        let some = |name: &str, path: &str| Some((name.to_owned(), Some(path.to_owned())));
        assert_eq!(found("\tlinux-vdso.so.1 (0x00007ffe5d3f2000)"), None);
        assert_eq!(found("\tlibc.so.6 => /lib/a (b)/libc.so.6 (0x00007f)"), some("libc.so.6", "/lib/a (b)/libc.so.6"));
        assert_eq!(
            found("\t/lib/ld-musl-x86_64.so.1 (0x7f5)"),
            some("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1")
        );
        assert_eq!(found("\tlibno.so => not found"), Some(("libno.so".to_owned(), None)));
        assert_eq!(found("\tstatically linked"), None);
    }
}
