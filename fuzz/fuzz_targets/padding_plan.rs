//! Any bytes as a plan of larger frames: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_infer::fuzz_padding_plan(bytes);
});
