//! Any bytes as a cached recipe table: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_tables::table_cache::fuzz_cache_file(bytes);
});
