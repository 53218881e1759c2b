//! How high the stack is at calls, compared with what was found by hand.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::Begins;
use small::{BASE, with_procedures};

use crate::small;

/// Of the first procedure: offsets of calls, with how far its CFA is above that of what is called.
fn heights(code: &[u8]) -> Vec<(u64, Option<i64>)> {
    with_procedures(&[code, b"\xc3"], |flow, graphs| {
        let heights = flow.call_heights(&graphs[0], Begins::Called);
        let mut found: Vec<_> = heights.into_iter().map(|(LinkAddr(at), height)| (at - BASE, height)).collect();
        found.sort_unstable();
        found
    })
}

#[test]
fn memory_of_a_computed_length_on_one_path() {
    // push rbp; mov rbp, rsp; test edi, edi; je 0xb; 3 bytes; call 0x20; leave; ret
    let around =
        |middle: &[u8]| [b"\x55\x48\x89\xe5\x85\xff\x74\x03", middle, b"\xe8\x10\x00\x00\x00\xc9\xc3"].concat();
    // nop
    assert_eq!(heights(&around(b"\x0f\x1f\x00")), [(15, Some(16))]);
    // sub rsp, rax
    assert_eq!(heights(&around(b"\x48\x29\xc4")), [(15, None)]);
}
