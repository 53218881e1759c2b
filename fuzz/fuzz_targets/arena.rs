//! Any bytes as what a program has left in the shared memory, read by the recorder.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_record::fuzz_arena(bytes);
});
