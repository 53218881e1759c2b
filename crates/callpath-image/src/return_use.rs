//! What a module's code does with return addresses besides returning to them: whether they may be replaced by others that
//! lead to the same place.
//! Knows nothing of who would replace them.

use std::path::Path;

use crate::elf::Image;

/// What a module's code does with return addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum ReturnUse {
    /// It returns to them; exceptions and traces go by call frame information.
    #[default]
    Ordinary = 0,
    /// Its own procedures read their own (the dynamic loader's resolver hands them on, an unwinder begins with its own).
    Reads = 1,
    /// It walks the whole stack by them, with maps of its own: a garbage collector, a stack that is copied.
    Walks = 2,
}

/// Files whose procedures read their own return addresses, as their names begin.
const READERS: [&str; 5] = ["ld-linux", "ld-2.", "ld64", "libgcc_s", "libunwind"];

/// Runtimes that walk their stacks themselves, by names that they export or ask for.
const WALKERS: [&[u8]; 9] = [
    b"JNI_CreateJavaVM",
    b"coreclr_initialize",
    b"mono_jit_init",
    b"_ZN2v88internal",
    b"_ZN2v87Isolate",
    b"caml_startup",
    b"caml_main",
    b"PyGreenlet_",
    b"_ZN2js",
];

/// The same by what their constants contain, where no name need be left.
const WALKERS_CONSTANTS: [&[u8]; 3] = [b"OCAMLRUNPARAM", b"Go buildinf:", b"greenlet.greenlet"];

impl ReturnUse {
    /// From its byte.
    pub fn from_byte(byte: u8) -> Option<ReturnUse> {
        [ReturnUse::Ordinary, ReturnUse::Reads, ReturnUse::Walks].into_iter().find(|r| *r as u8 == byte)
    }

    /// Of a module whose file has this path.
    pub fn of(image: &Image, path: &Path) -> ReturnUse {
        let any = |sections: &[&str], words: &[&[u8]]| {
            let found = sections.iter().filter_map(|name| image.section(name));
            found.into_iter().any(|section| words.iter().any(|word| contains(&section.data, word)))
        };
        if any(&[".dynstr", ".strtab"], &WALKERS) || any(&[".rodata", ".data", ".go.buildinfo"], &WALKERS_CONSTANTS) {
            return ReturnUse::Walks;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if READERS.iter().any(|reader| name.starts_with(reader)) { ReturnUse::Reads } else { ReturnUse::Ordinary }
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    let Some((first, _)) = word.split_first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| b == first) {
        if rest[at..].starts_with(word) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_wherever_it_stands() {
        for (bytes, found) in [("caml_main", true), ("xcaml_main", true), ("ccaml_mai", false), ("", false)] {
            assert_eq!(contains(bytes.as_bytes(), b"caml_main"), found, "{bytes}");
        }
    }

    #[test]
    fn ordinary_programs_are_ordinary() {
        for path in ["/bin/true", "/bin/sh"] {
            let image = Image::read(Path::new(path)).unwrap();
            assert_eq!(ReturnUse::of(&image, Path::new(path)), ReturnUse::Ordinary, "{path}");
        }
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(ReturnUse::of(&Image::read(loader).unwrap(), loader), ReturnUse::Reads);
    }
}
