//! What a module's code does with return addresses besides returning to them: whether they may be replaced by others
//! that lead to the same place. It does not know who replaces return addresses.

use std::path::Path;

use memchr::memmem::find;

use crate::elf::Image;

/// What a module's code does with return addresses besides returning to them. Traces, and exceptions that are
/// not caught, go by call frame information.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReturnUse {
    /// Its own procedures read their own (the dynamic loader's resolver hands
    /// them on, an unwinder begins with its own).
    pub reads: bool,
    /// It walks the whole stack by them, with maps of its own: a garbage collector, a stack that is copied.
    pub walks: bool,
    /// It may catch exceptions, and where is not known (else the recipes say it). An unwinder knows the frame that
    /// catches, when it comes there the second time, by where its callee's frame ends: there must not be one more
    /// frame between the two than the first time.
    pub catches: bool,
}

/// Files whose procedures read their own return addresses, as their names begin.
const RETURN_ADDRESS_USERS: [&str; 5] = ["ld-linux", "ld-2.", "ld64", "libgcc_s", "libunwind"];

/// Files whose tables of landing pads name nothing but clean-ups.
const ONLY_CLEAN_UP: [&str; 2] = ["libc.so.6", "libc-2."];

/// Runtimes that walk their stacks themselves, or copy them, by names that they export or ask for.
const WALKERS: [&[u8]; 19] = [
    // libunwind, which stops at a stub.
    b"_ULx86_64_",
    b"_Ux86_64_",
    b"JNI_CreateJavaVM",
    b"graal_create_isolate",
    b"coreclr_initialize",
    // .NET compiled ahead of time, or in one file.
    b"DotNetRuntimeDebugHeader",
    b"DotNetRuntimeInfo",
    b"mono_jit_init",
    b"_ZN2v88internal",
    b"_ZN2v87Isolate",
    b"JSGlobalContextCreate",
    b"Dart_Initialize",
    b"caml_startup",
    b"caml_main",
    b"PyGreenlet_",
    b"_ZN2js",
    // Continuations: the stack is copied, and put back when it has been returned from.
    b"ruby_Init_Continuation_body",
    b"scm_boot_guile",
    // Smalltalk's Cog: frames of its own on the stack.
    b"ceSendsupertonumArgs",
];

/// The same by what their constants contain, where no name need be left: OCaml, Go, greenlets, V8's options, GraalVM's
/// native images, SBCL. Each in two parts, the second one first, so that this program does not match.
const WALKERS_CONSTANTS: [[&str; 2]; 7] = [
    ["RUNPARAM", "OCAML"],
    ["buildinf:", "Go "],
    [".greenlet", "greenlet"],
    ["_filter", "turbo"],
    ["rbo-filter", "tu"],
    [".svm.core", "com.oracle"],
    ["_HOME", "SBCL"],
];

impl ReturnUse {
    /// As a byte.
    pub fn to_byte(self) -> u8 {
        u8::from(self.reads) | u8::from(self.walks) << 1 | u8::from(self.catches) << 2
    }

    /// From its byte; `None` for other bytes.
    pub fn from_byte(byte: u8) -> Option<ReturnUse> {
        let bit = |bit: u8| byte >> bit & 1 != 0;
        (byte < 8).then_some(ReturnUse { reads: bit(0), walks: bit(1), catches: bit(2) })
    }

    /// Of a module whose file has this path.
    pub fn of(image: &Image, path: &Path) -> ReturnUse {
        let constants = WALKERS_CONSTANTS.map(|[second, first]| [first, second].concat().into_bytes());
        let constants: Vec<&[u8]> = constants.iter().map(Vec::as_slice).collect();
        let any = |sections: &[&str], words: &[&[u8]]| {
            let found = sections.iter().filter_map(|name| image.section(name));
            found.into_iter().any(|section| words.iter().any(|word| find(&section.data, word).is_some()))
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_one_of = |names: &[&str]| names.iter().any(|begins| name.starts_with(begins));
        ReturnUse {
            reads: is_one_of(&RETURN_ADDRESS_USERS),
            walks: any(&[".dynstr", ".strtab"], &WALKERS) || any(&[".rodata", ".data", ".go.buildinfo"], &constants),
            catches: image.section(".gcc_except_table").is_some() && !is_one_of(&ONLY_CLEAN_UP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_programs_are_ordinary() {
        for path in ["/bin/true", "/bin/sh"] {
            let image = Image::read(Path::new(path)).unwrap();
            assert_eq!(ReturnUse::of(&image, Path::new(path)), ReturnUse::default(), "{path}");
        }
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert!(ReturnUse::of(&Image::read(loader).unwrap(), loader).reads);
        let own = std::env::current_exe().unwrap();
        assert!(!ReturnUse::of(&Image::read(&own).unwrap(), &own).walks, "this program contains its own list");
        for byte in 0..=255 {
            assert_eq!(ReturnUse::from_byte(byte).map(ReturnUse::to_byte), (byte < 8).then_some(byte));
        }
    }
}
