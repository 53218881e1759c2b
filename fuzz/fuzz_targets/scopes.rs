//! Any bytes as the sections of DWARF.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    std::hint::black_box(callpath_image::fuzzing::fuzz_scopes(bytes));
});
