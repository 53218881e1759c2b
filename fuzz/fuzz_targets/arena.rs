//! Any bytes as what a program left in shared memory: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_record::fuzz_arena(bytes);
});
