//! Any bytes as a recipe table: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_tables::recipes::fuzz_table(bytes);
});
