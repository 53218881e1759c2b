//! Any bytes as the memo of a large module's slices.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_tables::slices::fuzz_slices_memo(bytes);
});
