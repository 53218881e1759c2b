//! Any bytes as a stream of snapshots: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_tables::snapshot::fuzz_snapshot_stream(bytes);
});
