//! Any bytes as machine code: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_x86::fuzz_code(bytes);
});
