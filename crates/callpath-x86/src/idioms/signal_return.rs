//! The code that a signal handler returns to, by the System V ABI and Linux: `mov rax, 15; syscall`.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use crate::encoding::SYSCALL;

/// With rax or eax set to a constant of 32 bits. Both end with `syscall`.
const FORMS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, SYSCALL[0], SYSCALL[1]], &[0xb8, 15, 0, 0, 0, SYSCALL[0], SYSCALL[1]]];

/// The offsets of such code in `bytes`.
pub(crate) fn find(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let form_before = |end: usize| {
        let starts = FORMS.iter().filter_map(move |form| Some((form, end.checked_sub(form.len())?)));
        starts.into_iter().find_map(|(form, start)| (bytes.get(start..end)? == *form).then_some(start..end))
    };
    system_calls(bytes).filter_map(move |syscall| form_before(syscall + SYSCALL.len()))
}

/// Whether a frame whose look-up address is `address` is in such code: then the kernel called it, and it returns to
/// interrupted code. `bytes_at`: this many bytes of code at an address.
pub fn holds<'b>(address: LinkAddr, bytes_at: impl Fn(LinkAddr, usize) -> Option<&'b [u8]>) -> bool {
    let return_address = LinkAddr(address.0.wrapping_add(1));
    FORMS.iter().any(|form| {
        let at_system_call = LinkAddr(address.0.wrapping_sub((form.len() - SYSCALL.len()) as u64));
        // The handler's return address, or, if the sample was taken in this code, either of the two instructions.
        [return_address, address, at_system_call].iter().any(|&at| bytes_at(at, form.len()) == Some(form))
    })
}

/// Whether such code begins just behind `address`: a handler's return address is looked up by the byte before it, which is no
/// part of that code.
pub fn begins_behind<'b>(address: LinkAddr, bytes_at: impl Fn(LinkAddr, usize) -> Option<&'b [u8]>) -> bool {
    let begin = LinkAddr(address.0.wrapping_add(1));
    FORMS.iter().any(|form| bytes_at(begin, form.len()) == Some(form))
}

/// The frame there: `struct ucontext` is at rsp, with the registers of the interrupted code.
///
/// ```text
/// CFA = *(rsp + 160)    pc = *(rsp + 168)    reg = *(rsp + 40 + 8 n), in the order of `struct sigcontext`
/// ```
pub(crate) fn recipe() -> Recipe {
    // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, by DWARF number.
    const ORDER: [u16; 15] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2];
    let mut recipe = Recipe::with_cfa(Cfa::Deref { reg: Reg::RSP, disp: 160, add: 0 });
    recipe.signal_frame = true;
    recipe.return_address = Rule::AtRegister(Reg::RSP, 168);
    for (index, register) in (0..).zip(ORDER.into_iter().filter_map(Reg::from_dwarf)) {
        recipe.registers[register.index()] = Rule::AtRegister(Reg::RSP, 40 + 8 * index);
    }
    recipe
}

/// Candidates for `syscall`, as offsets in `bytes`. Searches many bytes at once.
fn system_calls(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    const STEP: usize = 64;
    let is_at = |offset: usize| bytes.get(offset..offset + 2) == Some(&SYSCALL[..]);
    let is_in = move |from: usize| {
        let first = bytes.get(from..from + STEP).unwrap_or(&[]);
        let second = bytes.get(from + 1..from + 1 + STEP).unwrap_or(&[]);
        // The last bytes are compared one by one.
        let is_short = first.len() != second.len() || first.is_empty();
        let found =
            |found: bool, (&a, &b): (&u8, &u8)| found | ((a == const { SYSCALL[0] }) & (b == const { SYSCALL[1] }));
        is_short || first.iter().zip(second).fold(false, found)
    };
    let steps = (0..bytes.len()).step_by(STEP).filter(move |&from| is_in(from));
    steps.flat_map(|from| from..from + STEP).filter(move |&offset| is_at(offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{Instruction, Operation};

    #[test]
    fn system_calls_are_found_wherever_they_lie() {
        for len in [0, 1, 2, 63, 64, 65, 66, 128, 129, 200] {
            for at in 0..len {
                let mut bytes = vec![0x0f; len];
                bytes[at] = 0x05;
                // The only 0x05 belongs to a system call if a byte precedes it.
                let expect: Vec<usize> = at.checked_sub(1).into_iter().collect();
                assert_eq!(system_calls(&bytes).collect::<Vec<_>>(), expect, "{at} of {len}");
            }
        }
    }

    #[test]
    fn both_forms_load_the_number_and_call_the_kernel() {
        for form in FORMS {
            let load = Instruction::decode(form).expect("an instruction");
            assert_eq!((load.operation(), load.immediate()), (Operation::Move, Some(15)));
            assert_eq!(load.register(0).general(), Some(0));
            let call = Instruction::decode(&form[load.len() as usize..]).expect("an instruction");
            assert_eq!((call.operation(), call.len() as usize), (Operation::SystemCall, SYSCALL.len()));
            assert_eq!((load.len() + call.len()) as usize, form.len());
        }
    }

    /// As objdump shows glibc's __restore_rt, behind other code: `mov $0xf,%rax; syscall`; and musl's.
    #[test]
    fn frames_in_it_are_known_at_each_of_its_addresses() {
        const AT: u64 = 0x1000;
        for (form, inside) in FORMS.into_iter().zip([7, 5]) {
            let code = [&[0x90; 20], form, &[0x90; 20]].concat();
            assert!(find(&code).eq(std::iter::once(20..20 + form.len())));
            let bytes_at = |at: LinkAddr, len: usize| {
                let from = at.0.checked_sub(AT)? as usize;
                code.get(from..from + len)
            };
            let held: Vec<u64> = (0..60).filter(|&offset| holds(LinkAddr(AT + offset), bytes_at)).collect();
            assert_eq!(held, [19, 20, 20 + inside]);
            let before: Vec<u64> = (0..60).filter(|&offset| begins_behind(LinkAddr(AT + offset), bytes_at)).collect();
            assert_eq!(before, [19]);
        }
        // Another number is another call: mov $0x10,%eax; syscall
        assert_eq!(find(&[0xb8, 16, 0, 0, 0, 0x0f, 0x05]).count(), 0);
    }
}
