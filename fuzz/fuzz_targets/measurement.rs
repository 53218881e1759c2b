//! Any bytes as the files of a measurement.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_measurement::fuzz_measurement(bytes);
});
