//! Any bytes as a database: nothing may panic, hang or exhaust the memory. A file that is refused for a checksum is
//! tried with the right ones.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_db::database::fuzz_database(bytes);
});
