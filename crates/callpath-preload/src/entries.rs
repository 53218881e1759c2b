//! Reads our two entries in an environment, and writes `LD_PRELOAD` without our object.

use core::ffi::CStr;

/// The variable that names the session.
pub const SESSION: &CStr = c"CALLPATH_SESSION";
/// The variable that lists the preloaded objects.
pub const OBJECTS: &CStr = c"LD_PRELOAD";
/// What the recorder calls the object's file (`crates/callpath-record/src/program.rs`).
const OBJECT_BEGINS: &[u8] = b"callpath-preload-";

/// The most that a path may have, bytes (PATH_MAX).
pub const PATH_LEN: usize = 4096;

/// The value of an entry, if it is of this variable.
pub fn value_of<'e>(entry: &'e CStr, name: &CStr) -> Option<&'e [u8]> {
    entry.to_bytes().strip_prefix(name.to_bytes()).and_then(|rest| rest.strip_prefix(b"="))
}

/// The path of our object among those that are preloaded.
pub fn object_of(paths: &[u8]) -> Option<&[u8]> {
    paths.split(|b| is_separator(*b)).find(|path| is_ours(path))
}

fn is_separator(byte: u8) -> bool {
    byte == b':' || byte == b' '
}

fn is_ours(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(OBJECT_BEGINS))
}

/// Writes the entry for the preloaded objects that are not ours, with a zero
/// byte; returns how many there are. `None`: no room.
pub fn others(paths: &[u8], entry: &mut [u8; PATH_LEN]) -> Option<usize> {
    let mut len = 0;
    let mut add = |bytes: &[u8]| {
        entry.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
        len += bytes.len();
        Some(())
    };
    add(OBJECTS.to_bytes())?;
    let mut count = 0;
    for path in paths.split(|b| is_separator(*b)).filter(|path| !path.is_empty() && !is_ours(path)) {
        add(if count == 0 { b"=" } else { b":" })?;
        add(path)?;
        count += 1;
    }
    add(&[0])?;
    Some(count)
}
