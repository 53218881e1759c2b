//! Any bytes as the files of a measurement: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_measurement::fuzz_measurement(bytes);
});
