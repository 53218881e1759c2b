//! Any bytes as a map of call paths, and all that it is asked: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_infer::fuzz_path_map(bytes);
});
