//! Whether a program is built with a sanitizer, from the names that it asks the dynamic loader for.
//! A sanitizer that is linked in whole, and exports nothing, is not seen.

use std::path::Path;

use crate::outline::Outline;

/// A sanitizer in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sanitizer {
    /// `AddressSanitizer`, for example.
    pub name: &'static str,
    /// AddressSanitizer's options are taken from a function of the program's own, which only ASAN_OPTIONS
    /// overrides, and the sanitizer itself is a library.
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
        Sanitizer::in_names(&Outline::open(path).ok()?.dynamic_names().ok()??)
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
        assert_eq!(Sanitizer::of(&own), None);
        assert_eq!(Sanitizer::of(Path::new("/dev/null")), None);
    }
}
