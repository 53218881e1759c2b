//! Any bytes as a cached recipe table.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_tables::table_cache::fuzz_cache_file(bytes);
});
