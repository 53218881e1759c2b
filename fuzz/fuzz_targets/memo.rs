//! Any bytes as a memo of a module: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_tables::module_memo::fuzz_memo(bytes);
});
