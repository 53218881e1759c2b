//! Procedures of generated code without a frame pointer, followed from possible beginnings to returns that find exactly
//! the return address.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::encoding::{begins_with_push, begins_with_subtraction, touches_below_stack};
use crate::instruction::Control;

use super::{ENTRY_ALIGNMENT, Follow, FramedProcedure, Known, Rbp, State, Within};

/// How often an instruction may be followed from beginnings that turn out wrong. Without a limit each beginning in a
/// long run of code would be followed to the run's end.
const VAIN_VISITS: u8 = 16;

/// `sub rsp, N`, `push`, or the store below the stack that HotSpot's prologue begins with.
fn begins_frame(code: &[u8]) -> bool {
    begins_with_subtraction(code) || begins_with_push(code) || touches_below_stack(code)
}

/// Instructions that were followed from wrong beginnings.
#[derive(Default)]
struct Vain {
    visits: FxHashMap<usize, u8>,
    /// Instructions for which this happened too often: they are not followed any more.
    worn: FxHashMap<usize, Known>,
}

impl Vain {
    fn note(&mut self, followed: &FxHashMap<usize, Known>) {
        for (at, step) in followed {
            let visits = self.visits.entry(*at).or_default();
            *visits = visits.saturating_add(1);
            if *visits == VAIN_VISITS {
                self.worn.insert(*at, *step);
            }
        }
    }
}

impl Follow<'_> {
    /// The procedures without a frame pointer in `range`, and their instructions.
    pub(super) fn balanced(&mut self, range: Range<usize>) -> (Vec<FramedProcedure>, FxHashMap<usize, Known>) {
        let mut found = Vec::new();
        let mut reached: FxHashMap<usize, Known> = FxHashMap::default();
        let mut vain = Vain::default();
        let to_entry = self.start.0.wrapping_add(range.start as u64).wrapping_neg() % ENTRY_ALIGNMENT;
        for at in (range.start + to_entry as usize..range.end).step_by(ENTRY_ALIGNMENT as usize) {
            if reached.contains_key(&at) || vain.worn.contains_key(&at) || !begins_frame(&self.code[at..]) {
                continue;
            }
            let mut own: FxHashMap<usize, Known> = FxHashMap::default();
            let mut edges: Vec<(usize, usize)> = Vec::new();
            self.keeps_rsp = true;
            let sure = [&reached, &vain.worn];
            let within = Within { sure: &sure, from: (at, State::ENTRY), prologue: at, range: at..range.end };
            self.follow(&mut own, &within, &mut |from, to| {
                edges.extend(to.map(|to| (to, from)));
            });
            self.keeps_rsp = false;
            let returns = |at: &usize| self.decode(*at).is_some_and(|i| i.control() == Control::Return);
            let (balanced, other): (Vec<usize>, Vec<usize>) = own.keys().copied().filter(returns).partition(|at| {
                own.get(at).and_then(|step| step.state).is_some_and(|s| s.rsp == Some(8) && s.rbp == Rbp::Caller)
            });
            // Some may be in data, after a call that does not return.
            if other.len() >= balanced.len() || edges.iter().any(|(to, _)| vain.worn.contains_key(to)) {
                vain.note(&own);
                continue;
            }
            edges.sort_unstable();
            let mut pending = balanced;
            let mut proven: FxHashMap<usize, Known> = FxHashMap::default();
            while let Some(at) = pending.pop() {
                let Some(step) = own.get(&at).filter(|_| !proven.contains_key(&at)) else { continue };
                proven.insert(at, *step);
                let first = edges.partition_point(|edge| edge.0 < at);
                pending.extend(edges[first..].iter().take_while(|edge| edge.0 == at).map(|edge| edge.1));
            }
            if proven.contains_key(&at) {
                reached.extend(proven.iter().map(|(at, step)| (*at, *step)));
                found.push(FramedProcedure { steps: self.steps(proven) });
            } else {
                vain.note(&own);
            }
        }
        (found, reached)
    }
}

#[cfg(test)]
mod tests {
    use callpath_format::address::LinkAddr;

    use super::*;

    /// How many instructions are decoded for `places` possible beginnings that reach no return.
    fn looks(places: usize) -> usize {
        // push %rax; nops
        let code = [0x50, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x80, 0, 0, 0, 0].repeat(places);
        let mut follow = Follow { code: &code, start: LinkAddr(0x7000_0000), keeps_rsp: false, looks: 0.into() };
        assert!(follow.balanced(0..code.len()).0.is_empty());
        follow.looks.get()
    }

    #[test]
    fn work_is_in_proportion_to_the_code() {
        let (few, many) = (looks(250), looks(2000));
        assert!(few > 250 && many < few * 8 * 3 / 2, "{few} for 250 places, {many} for 2000");
    }
}
