//! Any bytes as a table of call sites and landing pads.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::landing_pads::fuzz_landing_pads(bytes);
});
