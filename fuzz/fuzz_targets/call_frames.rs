//! Any bytes as call frame information: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::cfi::fuzz_call_frames(bytes);
});
