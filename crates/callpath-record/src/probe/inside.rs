//! The activations of probed procedures that had begun when the probes were set: they go on at home, and are not
//! counted.

use std::ops::Range;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_target::{Halted, Pid};

use crate::error::RecordError;
use crate::raw::Standing;
use crate::serve::Recorder;

/// As much of each thread's stack is looked at, bytes.
const STACK_BYTES: usize = 64 << 10;
/// The red zone, bytes.
const BELOW: u64 = 128;

/// The threads of a process, as they stand.
pub(super) fn standing(halted: &Halted) -> Result<Vec<Standing>, RecordError> {
    let mut all = Vec::new();
    for thread in halted.threads()? {
        let r = halted.registers(thread)?;
        let registers = [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15, r.rip,
        ];
        let start = r.rsp.wrapping_sub(BELOW) & !7;
        let mut bytes = vec![0; STACK_BYTES];
        let len = halted.read(RunAddr(start), &mut bytes)?;
        let (words, _) = bytes.get(..len).unwrap_or(&[]).as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        all.push(Standing::new(registers, start, &words));
    }
    Ok(all)
}

/// Procedures of one module.
pub(super) struct Homes<'h> {
    /// Their code, ascending.
    pub(super) code: &'h [Range<LinkAddr>],
    /// Their first instructions.
    pub(super) entries: &'h [LinkAddr],
    /// Run-time address minus link-time address.
    pub(super) bias: u64,
}

/// How many of these threads' frames lie in the code of procedures. Of one that stands at its first instruction, the
/// activation has not begun: it will be counted.
pub(super) fn inside(recorder: &mut Recorder<'_>, pid: Pid, threads: &[Standing], homes: &Homes<'_>) -> u64 {
    let Homes { code: homes, entries, bias } = *homes;
    let Some(first) = homes.first() else { return 0 };
    let Some(of_module) = recorder.frame_at(pid, RunAddr(first.start.0.wrapping_add(bias))) else { return 0 };
    let is_inside = |key: &FrameKey| {
        let at = LinkAddr(key.address());
        let after = homes.partition_point(|home| home.start <= at);
        let home = after.checked_sub(1).and_then(|number| homes.get(number));
        key.module() == of_module.module() && home.is_some_and(|home| home.contains(&at))
    };
    let mut count = 0;
    for thread in threads {
        let frames = recorder.frames_of(pid, thread).unwrap_or_default();
        let begins = |key: &FrameKey| entries.contains(&LinkAddr(key.address()));
        let begun = frames.iter().enumerate().filter(|(number, key)| is_inside(key) && (*number > 0 || !begins(key)));
        count += begun.count() as u64;
    }
    count
}
