//! Any bytes as the pack of a measurement: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_analyze::attribute::fuzz_pack(bytes);
});
