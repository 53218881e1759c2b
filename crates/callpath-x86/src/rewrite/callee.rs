//! What a call instruction calls, as far as the instruction says it.

use callpath_format::address::LinkAddr;

use crate::graph::{CallSite, ModuleFlow};
use crate::instruction::Control;

/// Who is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// The code at this address.
    At(LinkAddr),
    /// Whatever this word of the module holds the address of.
    Through(LinkAddr),
    /// Whatever a register or another word leads to.
    Unknown,
}

/// Who a call of a module calls; `None` if it is no call instruction.
pub fn callee(flow: &ModuleFlow<'_>, call: &CallSite) -> Option<Callee> {
    let (_, instruction) = flow.instructions(&call.code).first().copied()?;
    let next = call.code.start.0.wrapping_add(instruction.len().into());
    match instruction.control() {
        Control::Call => Some(Callee::At(LinkAddr(instruction.target(next)))),
        Control::CallIndirect => {
            Some(instruction.beside_code(next).map_or(Callee::Unknown, |word| Callee::Through(LinkAddr(word))))
        }
        _ => None,
    }
}
