//! Any bytes as a table of call sites, landing pads and their clauses.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::exception_table::fuzz_exception_table(bytes);
});
