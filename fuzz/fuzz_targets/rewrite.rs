//! Any bytes as machine code, copied with code inserted: nothing may panic, and what is written must not overlap.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_x86::rewrite::fuzz_rewrite(bytes);
});
