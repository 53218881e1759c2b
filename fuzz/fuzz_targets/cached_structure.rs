//! Any bytes as the body of a cached structure: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_analyze::structure::fuzz_cached_structure(bytes);
});
