//! Any bytes as the body of a cached structure.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_analyze::structure::fuzz_cached_structure(bytes);
});
