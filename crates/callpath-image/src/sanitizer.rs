//! Whether a program is built with a sanitizer, from the names that it asks the dynamic loader for.
//! Knows nothing of what to do about it. A sanitizer that is linked in whole, and exports nothing, is not seen.

use std::fs::File;
use std::path::Path;

use crate::abi;
use crate::bytes::Bytes;
use crate::error::ImageError;
use crate::headers::Header;
use crate::peek::read_at;

/// No program has more names.
const MOST_BYTES: u64 = 64 << 20;
const HEAD_LEN: u64 = 64;
const ENTRY_LEN: u64 = 56;

/// A sanitizer in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sanitizer {
    /// `AddressSanitizer`, for example.
    pub name: &'static str,
    /// AddressSanitizer's options are taken from a function of the program's own, which only ASAN_OPTIONS overrides, and
    /// the sanitizer itself is a library.
    pub sets_own_options: bool,
}

/// What a program calls first of a sanitizer, and what that is called.
const SANITIZERS: [(&[u8], &str); 4] = [
    (b"__asan_init", "AddressSanitizer"),
    (b"__tsan_init", "ThreadSanitizer"),
    (b"__msan_init", "MemorySanitizer"),
    (b"__lsan_init", "LeakSanitizer"),
];

impl Sanitizer {
    /// Reads the names of the dynamic ELF file at `path`. What cannot be read has no sanitizer.
    pub fn of(path: &Path) -> Option<Sanitizer> {
        Sanitizer::in_names(&dynamic_names(path).ok()??)
    }

    fn in_names(names: &[u8]) -> Option<Sanitizer> {
        let has = |wanted: &[u8]| names.split(|byte| *byte == 0).any(|name| name == wanted);
        let (_, name) = SANITIZERS.into_iter().find(|(first, _)| has(first))?;
        let is_library = names
            .split(|byte| *byte == 0)
            .any(|name| name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan"));
        Some(Sanitizer { name, sets_own_options: is_library && has(b"__asan_default_options") })
    }
}

/// The string table that the dynamic section names.
fn dynamic_names(path: &Path) -> Result<Option<Vec<u8>>, ImageError> {
    let failed = |source| ImageError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(failed)?;
    let read = |offset, len_bytes: u64| read_at(&file, offset, len_bytes.min(MOST_BYTES)).map_err(failed);
    let header = Header::parse(&read(0, HEAD_LEN)?, path)?;
    let table = read(header.phoff, u64::from(header.phnum) * ENTRY_LEN)?;
    // Type, offset in the file, address, length in the file.
    let segments: Vec<(u32, u64, u64, u64)> = table
        .chunks_exact(ENTRY_LEN as usize)
        .filter_map(|entry| Some((entry.u32_at(0)?, entry.u64_at(8)?, entry.u64_at(16)?, entry.u64_at(32)?)))
        .collect();
    let Some((_, offset, _, len_bytes)) = segments.iter().find(|segment| segment.0 == abi::PT_DYNAMIC) else {
        return Ok(None);
    };
    let dynamic = read(*offset, *len_bytes)?;
    let value = |wanted| {
        let mut entries = dynamic.chunks_exact(16).map(|entry| (entry.u64_at(0), entry.u64_at(8)));
        entries.find(|(tag, _)| *tag == Some(wanted)).and_then(|(_, value)| value)
    };
    let (Some(at), Some(len_bytes)) = (value(abi::DT_STRTAB), value(abi::DT_STRSZ)) else { return Ok(None) };
    let place = segments.iter().find_map(|(kind, offset, address, segment_len)| {
        let within = at.checked_sub(*address).filter(|within| *kind == abi::PT_LOAD && within < segment_len)?;
        offset.checked_add(within)
    });
    place.map(|place| read(place, len_bytes)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_names(names: &str) -> Option<Sanitizer> {
        Sanitizer::in_names(names.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn names_tell_which_one() {
        assert_eq!(in_names(" libc.so.6 printf my__asan_init"), None);
        let asan = |sets_own_options| Some(Sanitizer { name: "AddressSanitizer", sets_own_options });
        assert_eq!(in_names(" libasan.so.8 libc.so.6 __asan_init"), asan(false));
        assert_eq!(in_names(" libasan.so.8 __asan_init __asan_default_options"), asan(true));
        // Linked in: the options are always of the program's own file.
        assert_eq!(in_names(" libc.so.6 __asan_init __asan_default_options"), asan(false));
        assert_eq!(in_names(" libtsan.so.2 __tsan_init").map(|s| s.name), Some("ThreadSanitizer"));
    }

    #[test]
    fn this_test_has_none() {
        let own = std::env::current_exe().unwrap();
        let names = dynamic_names(&own).unwrap().expect("it is dynamically linked");
        assert!(names.windows(9).any(|name| name == b"libc.so.6"), "its names were not found");
        assert_eq!(Sanitizer::of(&own), None);
        assert_eq!(Sanitizer::of(Path::new("/dev/null")), None);
    }
}
