//! Any bytes as call frame information.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::cfi::fuzz_call_frames(bytes);
});
