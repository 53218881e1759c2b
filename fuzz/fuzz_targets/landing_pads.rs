//! Any bytes as a table of call sites and landing pads: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_image::landing_pads::fuzz_landing_pads(bytes);
});
