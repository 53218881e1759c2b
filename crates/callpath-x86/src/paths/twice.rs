//! System calls that return twice, in threads or processes that count in the same place until they have places of their own.

use callpath_format::address::LinkAddr;

use crate::graph::{ModuleFlow, ProcedureGraph};
use crate::instruction::Operation;
use crate::state::RAX;

/// Numbers of system calls: clone, fork, clone3.
const STARTING: [u64; 3] = [56, 57, 435];
/// The instruction.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// So much of what is called is looked at, bytes: wrappers of system calls are short.
const WRAPPER_BYTES: u64 = 512;

/// Whether control may leave a call or a system call of a procedure more often than it comes there, since it starts a process or a thread by a
/// system call, or calls what does so in the same module.
pub fn may_return_twice(flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> bool {
    let blocks = graph.blocks.iter().any(|block| starts(flow, block.code.start, block.code.end));
    let wrapper = |target: LinkAddr| {
        let at_most = LinkAddr(target.0.saturating_add(WRAPPER_BYTES));
        let next = flow.fragment_from(LinkAddr(target.0.saturating_add(1)));
        starts(flow, target, next.map_or(at_most, |next| next.min(at_most)))
    };
    blocks || graph.calls.iter().filter_map(|call| call.target).any(wrapper)
}

/// Whether code makes such a system call, or one whose number is not known.
fn starts(flow: &ModuleFlow<'_>, start: LinkAddr, end: LinkAddr) -> bool {
    let code = start..end;
    if memchr::memmem::find(flow.bytes(&code), &SYSTEM_CALL).is_none() {
        return false;
    }
    // What is known of each register's value.
    let mut known = [None; 16];
    for (_, instruction) in flow.instructions(&code) {
        if instruction.operation() == Operation::SystemCall {
            if known[RAX].is_none_or(|number| STARTING.contains(&number)) {
                return true;
            }
            continue;
        }
        let of = |operand: usize| instruction.register(operand).general();
        let Some(written) = of(0) else { continue };
        let value = match instruction.operation() {
            Operation::Move => {
                instruction.immediate().or_else(|| of(1).and_then(|from| known.get(from).copied().flatten()))
            }
            // The way to set it to 0.
            Operation::Xor if of(1) == Some(written) => Some(0),
            Operation::Compare | Operation::Test => continue,
            _ => None,
        };
        if let Some(known) = known.get_mut(written) {
            *known = value;
        }
    }
    false
}
