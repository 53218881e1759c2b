//! Any bytes as an ELF image with its symbols and lines: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    std::hint::black_box(callpath_image::fuzzing::fuzz_image(bytes));
});
