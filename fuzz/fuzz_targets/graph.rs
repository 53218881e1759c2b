//! Any bytes as machine code, made into control flow graphs and loops: nothing may panic, hang or exhaust the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_x86::graph::fuzz_graph(bytes);
});
