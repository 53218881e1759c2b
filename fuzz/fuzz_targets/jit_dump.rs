//! Any bytes as the records in which a program names and describes its generated code: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_record::jit_dump::fuzz_jit_dump(bytes);
});
