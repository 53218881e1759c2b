//! System calls: which one a sample was in that the kernel delivered at the call's end.
//!
//! A sample is a signal, and those that come due in the kernel are delivered when it returns. So its pc is the one behind a `syscall`
//! instruction. Page faults and interrupts return to other instructions: they are none.

mod numbers;

use callpath_format::address::LinkAddr;
use callpath_x86::system_call::{self, Origin};
use rustc_hash::FxHashMap;

use crate::names::ModuleNames;

/// The numbers that calls give to wrappers of system calls, by module, the call's look-up address, and the register.
pub(crate) type Arguments = FxHashMap<(usize, LinkAddr, u8), Option<u32>>;

/// What a system call is called whose number is not known.
const NAMELESS: &str = "system call";

/// Where the number of the system call comes from that a frame interrupted at `pc` was in; `None`: in none.
pub(crate) fn at(names: &ModuleNames, pc: LinkAddr) -> Option<Origin> {
    let (code, start) = procedure(names, pc)?;
    system_call::system_call(code, start, pc)
}

/// The number that a call gives to a wrapper in a register; `None` where that is not a constant. `call` is a look-up address.
pub(crate) fn given(names: &ModuleNames, call: LinkAddr, register: u8) -> Option<u32> {
    let (code, start) = procedure(names, call)?;
    match system_call::argument(code, start, call, register) {
        Origin::Constant(number) => Some(number),
        Origin::Caller(_) | Origin::Unknown => None,
    }
}

/// What the system call is called.
pub(crate) fn name(number: Option<u32>) -> String {
    let Some(number) = number else { return NAMELESS.to_owned() };
    numbers::name(number).map_or_else(|| format!("{NAMELESS} {number}"), str::to_owned)
}

/// The code of the procedure that holds an address, and where it begins.
fn procedure(names: &ModuleNames, addr: LinkAddr) -> Option<(&[u8], LinkAddr)> {
    let bounds = names.bounds(addr)?;
    let code = names.bytes(bounds.start, usize::try_from(bounds.len).ok()?)?;
    Some((code, bounds.start))
}
