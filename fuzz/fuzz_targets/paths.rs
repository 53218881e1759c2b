//! Any bytes as machine code, paths through its procedures numbered: nothing may panic, and numbers decode to their paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_x86::paths::fuzz_paths(bytes);
});
