//! Which Debian package a file is from, and which one has its debug information.
//!
//! dpkg's lists are read as text: asking dpkg costs a process of 50 ms for each file.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

/// Where dpkg keeps one list of files for each package.
pub const DPKG_LISTS: &str = "/var/lib/dpkg/info";

/// The package that owns each of `paths`, in their order. `None` where none does, or where `lists`
/// ([`DPKG_LISTS`]) is not there: then this is no Debian.
pub fn owners(paths: &[&Path], lists: &Path) -> Vec<Option<String>> {
    let mut owners = vec![None; paths.len()];
    let mut wanted: FxHashMap<Vec<u8>, Vec<usize>> = FxHashMap::default();
    for (index, path) in paths.iter().enumerate() {
        for name in spellings(path) {
            wanted.entry(name.into_vec()).or_default().push(index);
        }
    }
    if wanted.is_empty() {
        return owners;
    }
    let Ok(entries) = std::fs::read_dir(lists) else { return owners };
    for list in entries.flatten().map(|entry| entry.path()) {
        if list.extension().is_none_or(|extension| extension != "list") {
            continue;
        }
        // Each list takes a file to read, and there are hundreds.
        if owners.iter().all(Option::is_some) {
            break;
        }
        let Some(package) = list.file_stem().and_then(|stem| stem.to_str()) else { continue };
        // A list that cannot be read only costs a hint.
        let Ok(files) = std::fs::read(&list) else { continue };
        for line in files.split(|&byte| byte == b'\n') {
            for &index in wanted.get(line).into_iter().flatten() {
                if let Some(owner) = owners.get_mut(index) {
                    let name = package.split_once(':').map_or(package, |(name, _)| name);
                    *owner = Some(name.to_string());
                }
            }
        }
    }
    owners
}

/// The names that a list may know a file by: resolved, and with and without `/usr`, since `/lib` became a link to
/// `/usr/lib` while packages went on to say `/lib`.
fn spellings(path: &Path) -> Vec<OsString> {
    let mut spellings = vec![path.to_path_buf()];
    spellings.extend(path.canonicalize());
    let merged = |path: &PathBuf| match path.strip_prefix("/usr") {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => Path::new("/usr").join(path.strip_prefix("/").unwrap_or(path)),
    };
    let others: Vec<PathBuf> = spellings.iter().map(merged).collect();
    spellings.extend(others);
    spellings.retain(|path| path.is_absolute() && !path.as_os_str().as_bytes().contains(&b'\n'));
    spellings.into_iter().map(PathBuf::into_os_string).collect()
}

/// The package with the debug information of `package`: Debian builds a `-dbgsym` beside each, the C library's is
/// older than that rule.
pub fn debug_package(package: &str) -> String {
    match package {
        "libc6" | "libc-bin" => "libc6-dbg".to_string(),
        _ => format!("{package}-dbgsym (from Debian's archive debian-debug)"),
    }
}
