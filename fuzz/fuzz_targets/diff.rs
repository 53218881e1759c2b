//! Any bytes as two trees whose scopes look alike: their difference may not panic or hang, and what they cost adds up.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_db::diff::fuzz_diff(bytes);
});
