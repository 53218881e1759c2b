//! Any bytes as the names that a program gives its generated code: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_record::perf_map::fuzz_perf_map(bytes);
});
