//! Any bytes as an exception table: what can be read of it and written is read back equal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::moved_frames::fuzz_exception_table_written(bytes);
});
