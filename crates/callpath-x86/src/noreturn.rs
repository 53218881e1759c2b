//! Noreturn analysis: which calls never return. A procedure returns if a return, or a jump that cannot be followed, is
//! reachable from it.
//!
//! From an address, control reaches the next event of the sweep. Events that may lead to a return are found backwards
//! from the returns; an event after a call is reachable through it once the called procedure is known to return, and a
//! call's landing pad always: what is called may throw. Every edge is visited once.

use crate::code_map::NOWHERE;
use crate::sweep::{Event, EventKind};
use crate::worklist::Search;

/// The result for each event of a sweep.
pub(crate) struct NoReturn {
    /// Whether a return is reachable from here.
    returns: Vec<bool>,
    /// Index of the first event at or after each multiple of [`STRIDE`].
    index: Vec<u32>,
}

const STRIDE: u32 = 64;
/// The index of no event.
const NO_EVENT: u32 = u32::MAX;

impl NoReturn {
    /// `events` are sorted; positions are below `len`. `landing_pads`: `(from, to, pad)` of calls, sorted.
    pub(crate) fn new(events: &[Event], len: u32, landing_pads: &[(u32, u32, u32)]) -> NoReturn {
        let mut index = Vec::with_capacity((len / STRIDE) as usize + 2);
        for (number, event) in (0u32..).zip(events) {
            while index.len() as u32 * STRIDE <= event.at {
                index.push(number);
            }
        }
        let mut found = NoReturn { returns: Vec::new(), index };
        let targets: Vec<u32> = events.iter().map(|event| found.target_of(events, event)).collect();
        let (offsets, sources) = sources(&targets);
        let throwing = found.throwing(events, landing_pads);
        let mut search = Search::new(vec![false; events.len()]);
        for (number, event) in (0u32..).zip(events) {
            let returns = match event.kind {
                EventKind::Leave => true,
                // To code outside the module.
                EventKind::Jump | EventKind::Branch => event.target == NOWHERE,
                EventKind::Call | EventKind::Stop => false,
            };
            if returns {
                search.add(number);
            }
        }
        while let Some(number) = search.next() {
            // Control falls through to here from the event before.
            if let Some(before) = number.checked_sub(1)
                && let Some(event) = events.get(before as usize)
            {
                let falls = match event.kind {
                    EventKind::Branch => true,
                    EventKind::Call => match targets.get(before as usize) {
                        Some(&target) if target != NO_EVENT => search.met.get(target as usize) == Some(&true),
                        // To code outside the module.
                        _ => true,
                    },
                    _ => false,
                };
                if falls {
                    search.add(before);
                }
            }
            let from = offsets.get(number as usize).copied().unwrap_or(0) as usize;
            let to = offsets.get(number as usize + 1).copied().unwrap_or(0) as usize;
            for &source in sources.get(from..to).unwrap_or(&[]) {
                let leads = match events.get(source as usize).map(|event| event.kind) {
                    Some(EventKind::Call) => search.met.get(source as usize + 1).is_some_and(|&after| after),
                    _ => true,
                };
                if leads {
                    search.add(source);
                }
            }
            let first = throwing.partition_point(|&(pad, _)| pad < number);
            let to_here = throwing.get(first..).unwrap_or(&[]).iter().take_while(|&&(pad, _)| pad == number);
            to_here.for_each(|&(_, call)| search.add(call));
        }
        found.returns = search.met;
        found
    }

    /// Whether a procedure at `target` never returns. `events`: those given to `new`.
    pub(crate) fn is(&self, events: &[Event], target: u32) -> bool {
        target != NOWHERE && self.event_at(events, target).is_some_and(|event| self.returns.get(event) != Some(&true))
    }

    /// The first event at or after a position.
    fn event_at(&self, events: &[Event], at: u32) -> Option<usize> {
        let first = *self.index.get((at / STRIDE) as usize)? as usize;
        let rest = events.get(first..)?;
        let skipped = rest.iter().take_while(|event| event.at < at).count();
        (skipped < rest.len()).then_some(first + skipped)
    }

    /// The event that control reaches from the target of a branch, jump or call, or [`NO_EVENT`].
    fn target_of(&self, events: &[Event], event: &Event) -> u32 {
        match event.kind {
            EventKind::Branch | EventKind::Jump | EventKind::Call if event.target != NOWHERE => {
                self.event_at(events, event.target).map_or(NO_EVENT, |target| target as u32)
            }
            _ => NO_EVENT,
        }
    }
}

impl NoReturn {
    /// The calls that have landing pads, by the event that control reaches from there: sorted.
    fn throwing(&self, events: &[Event], landing_pads: &[(u32, u32, u32)]) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for &(from, to, pad) in landing_pads {
            let (Some(first), Some(pad)) = (self.event_at(events, from), self.event_at(events, pad)) else { continue };
            let calls = events.iter().enumerate().skip(first).take_while(|(_, event)| event.at < to);
            let calls = calls.filter(|(_, event)| event.kind == EventKind::Call);
            found.extend(calls.map(|(call, _)| (pad as u32, call as u32)));
        }
        found.sort_unstable();
        found
    }
}

/// For each event, the branches, jumps and calls that lead to it: offsets in a list.
fn sources(targets: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut offsets = vec![0u32; targets.len() + 2];
    for &target in targets.iter().filter(|&&target| target != NO_EVENT) {
        offsets[target as usize + 2] += 1;
    }
    for at in 2..offsets.len() {
        offsets[at] += offsets[at - 1];
    }
    let mut sources = vec![0u32; *offsets.last().unwrap_or(&0) as usize];
    for (number, &target) in (0u32..).zip(targets).filter(|(_, target)| **target != NO_EVENT) {
        let at = &mut offsets[target as usize + 1];
        sources[*at as usize] = number;
        *at += 1;
    }
    (offsets, sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events one byte apart; targets are indices.
    fn check(events: &[(EventKind, u32)], expect: &[bool]) {
        check_with(&[], events, expect);
    }

    fn check_with(pads: &[(u32, u32, u32)], events: &[(EventKind, u32)], expect: &[bool]) {
        let events: Vec<Event> = (0..).zip(events).map(|(at, &(kind, target))| Event { at, kind, target }).collect();
        assert_eq!(NoReturn::new(&events, 1000, pads).returns, expect);
    }

    #[test]
    fn calls_return_from_handlers() {
        use EventKind::*;
        // 0: call 4, which throws, with a handler at 2; 1: stop — 2: ret — 3: stop — 4: stop
        let events = [(Call, 4), (Stop, NOWHERE), (Leave, NOWHERE), (Stop, NOWHERE), (Stop, NOWHERE)];
        check_with(&[(0, 1, 2)], &events, &[true, false, true, false, false]);
        // The handler of another call.
        check_with(&[(1, 2, 2)], &events, &[false, false, true, false, false]);
        check_with(&[(0, 1, 3)], &events, &[false, false, true, false, false]);
    }

    #[test]
    fn calls_return_if_their_procedures_do() {
        use EventKind::*;
        // 0: call 2; 1: ret — 2: call 4; 3: ret — 4: stop
        check(
            &[(Call, 2), (Leave, NOWHERE), (Call, 4), (Leave, NOWHERE), (Stop, NOWHERE)],
            &[false, true, false, true, false],
        );
        // 0: call 2; 1: ret — 2: branch 3 — 3: jump to 1
        check(&[(Call, 2), (Leave, NOWHERE), (Branch, 3), (Jump, 1)], &[true, true, true, true]);
        // Two procedures that only call each other do not return.
        check(&[(Call, 2), (Leave, NOWHERE), (Call, 0), (Leave, NOWHERE)], &[false, true, false, true]);
        // A call to another module returns.
        check(&[(Call, NOWHERE), (Leave, NOWHERE)], &[true, true]);
    }
}
