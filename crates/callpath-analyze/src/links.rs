//! Whether a caller can have called its callee: the certificate of each step of a walk.
//! Knows nothing of samples.
//!
//! Tallent et al. 2009, section 2.3.2: a link is *valid* if a call of the callee precedes the return address, directly or
//! through the procedure linkage table; *likely* if a dynamically dispatched call does, or one of a procedure that hands
//! over by jumping; *invalid* if none of these. Here also: the frame of a signal handler's return and what it
//! interrupted are valid, so is a coroutine's routine under its outermost frame, and code that cannot be looked at makes a
//! link likely.

use callpath_format::address::LinkAddr;
use callpath_x86::call_site::{LONGEST_CALL_BYTES, calls_before, hands_over};
use rustc_hash::FxHashMap;

use crate::names::ModuleNames;
use crate::recipes::coroutine;

/// What is to be said of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Valid,
    Likely,
    Invalid,
}

/// A frame: its module's names (`None`: it cannot be looked at) and its look-up address.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'n> {
    pub(crate) module: usize,
    pub(crate) names: Option<&'n ModuleNames>,
    pub(crate) address: LinkAddr,
}

/// Judges links, each once.
#[derive(Default)]
pub(crate) struct Judge {
    verdicts: FxHashMap<(usize, LinkAddr, usize, LinkAddr), Verdict>,
    hands_over: FxHashMap<(usize, LinkAddr), bool>,
}

impl Judge {
    /// Whether `caller` (a call site) can have called `callee`.
    pub(crate) fn judge(&mut self, caller: Frame<'_>, callee: Frame<'_>) -> Verdict {
        // All places of a procedure are called in the same way.
        let start = callee.names.and_then(|n| n.bounds(callee.address)).map_or(callee.address, |p| p.start);
        let key = (caller.module, caller.address, callee.module, start);
        if let Some(verdict) = self.verdicts.get(&key) {
            return *verdict;
        }
        let verdict = self.decide(caller, callee);
        self.verdicts.insert(key, verdict);
        verdict
    }

    fn decide(&mut self, caller: Frame<'_>, callee: Frame<'_>) -> Verdict {
        let Some(names) = caller.names.filter(|n| n.is_usable()) else { return Verdict::Likely };
        if is_signal_return(caller) || is_signal_return(callee) {
            return Verdict::Valid;
        }
        let return_address = LinkAddr(caller.address.0.wrapping_add(1));
        if names.bytes(return_address, coroutine::START_LEN_BYTES).is_some_and(coroutine::is_start) {
            return Verdict::Valid;
        }
        let before = (2..=LONGEST_CALL_BYTES)
            .rev()
            .find_map(|len| names.bytes(LinkAddr(return_address.0.wrapping_sub(len as u64)), len));
        let Some(before) = before else { return Verdict::Likely };
        let calls = calls_before(before, return_address);
        let direct = calls.direct.map(|target| self.direct(caller, names, target, callee));
        match direct {
            Some(verdict @ (Verdict::Valid | Verdict::Likely)) => verdict,
            _ if calls.dynamic => Verdict::Likely,
            _ => Verdict::Invalid,
        }
    }

    /// A call of `target`, which is in the caller's module.
    fn direct(&mut self, caller: Frame<'_>, names: &ModuleNames, target: LinkAddr, callee: Frame<'_>) -> Verdict {
        let called = callee.names.and_then(|n| n.bounds(callee.address));
        if caller.module == callee.module
            && called.is_some_and(|p| p.start <= target && target.0 - p.start.0 < p.len.max(1))
        {
            return Verdict::Valid;
        }
        let Some(procedure) = names.bounds(target) else { return Verdict::Likely };
        if let Some(stub) = procedure.name.and_then(|n| n.strip_suffix("@plt")) {
            // A resolver may have chosen another procedure for the name (memcpy, for one).
            let same = called.and_then(|p| p.name).is_some_and(|name| name == stub);
            return if same { Verdict::Valid } else { Verdict::Likely };
        }
        let key = (caller.module, procedure.start);
        let (start, len) = (procedure.start, procedure.len);
        let hands = *self.hands_over.entry(key).or_insert_with(|| {
            let code = usize::try_from(len).ok().and_then(|len| names.bytes(start, len));
            code.is_none_or(|code| hands_over(code, start))
        });
        if hands { Verdict::Likely } else { Verdict::Invalid }
    }
}

/// Whether the frame is where a signal handler returns to: `mov eax, 15; syscall`. What called it is the kernel, and what
/// it returns to was interrupted.
fn is_signal_return(frame: Frame<'_>) -> bool {
    const RETURNS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
    let return_address = LinkAddr(frame.address.0.wrapping_add(1));
    let is = |at: LinkAddr, code: &[u8]| frame.names.and_then(|n| n.bytes(at, code.len())).is_some_and(|b| b == code);
    RETURNS.iter().any(|code| {
        // The handler's return address, or, sampled inside, either of the two instructions.
        is(return_address, code)
            || is(frame.address, code)
            || is(LinkAddr(frame.address.0.wrapping_sub(code.len() as u64 - 2)), code)
    })
}
