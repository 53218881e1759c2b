//! Any bytes as machine code, made into control flow graphs and loops.
//! Knows nothing of what is right: only that nothing panics, hangs or exhausts the memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    callpath_x86::graph::fuzz_graph(bytes);
});
