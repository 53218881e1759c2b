//! Any bytes as a table of call sites, landing pads and their clauses: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::exception_table::fuzz_exception_table(bytes);
});
