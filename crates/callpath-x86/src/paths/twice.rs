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
    let wrapper = |target: LinkAddr| starts(flow, target, LinkAddr(target.0.saturating_add(WRAPPER_BYTES)));
    blocks || graph.calls.iter().filter_map(|call| call.target).any(wrapper)
}

/// Whether code makes such a system call, or one whose number is not known.
fn starts(flow: &ModuleFlow<'_>, start: LinkAddr, end: LinkAddr) -> bool {
    let code = start..end;
    if memchr::memmem::find(flow.bytes(&code), &SYSTEM_CALL).is_none() {
        return false;
    }
    let mut number = None;
    for (_, instruction) in flow.instructions(&code) {
        if instruction.operation() == Operation::SystemCall {
            if number.is_none_or(|number| STARTING.contains(&number)) {
                return true;
            }
        } else if instruction.operation() == Operation::Move && instruction.register(0).general() == Some(RAX) {
            number = instruction.immediate();
        }
    }
    false
}
