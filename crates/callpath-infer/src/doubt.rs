//! Whether an identifier that was seen with one path may have others: what the code has besides, and what was met at no known height.
//!
//! ```text
//! sure(path at a height) = its caller's path is sure there, and no call in the code leads there from elsewhere:
//!                          not from a context that was seen, nor by way of procedures that were seen at no such height
//! ```
//!
//! Each pair of procedure and height is looked at once, however many chains of calls lead through it. A chain only matters if it begins in a
//! context that was seen, so that pairs below the least height that such chains have are left out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use callpath_format::frame::CloneNumber;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::map::{DirectCall, Identifier, PathMap};

/// Why an identifier with one path may have others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doubt {
    /// No reason; or several paths, where none is looked for.
    None,
    /// The code has another.
    Code,
    /// The procedure was met at heights that are not known, and this may be one of them.
    Open,
    /// Not all calls of the procedure could be counted.
    Uncounted,
}

/// Some seconds; no map of a program needs as many.
pub(crate) const MOST_CALLS: usize = 1 << 26;

/// The doubts that there are about the identifiers of a map, whose paths are known. `most_calls`: so many calls may be looked at; what is not looked at
/// then is not ruled out.
pub(crate) fn doubts(map: &PathMap, most_calls: usize) -> Vec<(Identifier, Doubt)> {
    let open_from = open_from(map);
    let is_open = |identifier: &Identifier| {
        let from = open_from.get(&(identifier.root, identifier.procedure));
        from.is_some_and(|from| *from <= identifier.bytes())
    };
    // Callers before callees.
    let of_one = |(identifier, paths, meant): (Identifier, &[u32], usize)| {
        let only = single(paths.get(..meant).filter(|meant| !meant.is_empty()).unwrap_or(paths));
        Seen { identifier, only, is_alone: paths.len() == 1 && meant == 1 }
    };
    let mut all: Vec<Seen> = map.meant_answers().map(of_one).collect();
    all.sort_unstable_by_key(|Seen { identifier: of, .. }| (of.root, of.bytes(), of.procedure, of.height));
    let mut chains = Chains::of(map, most_calls);
    let mut found = Vec::new();
    for of_stack in all.chunk_by(|one, two| one.identifier.root == two.identifier.root) {
        chains.enter(of_stack);
        for &Seen { identifier, only, is_alone } in of_stack {
            let has_other = !is_alone || only.is_none_or(|only| chains.has_other(identifier, only));
            if has_other {
                chains.unsure.insert(identifier);
            }
            let doubt = match only {
                _ if map.uncounted.binary_search(&identifier.procedure).is_ok() => Doubt::Uncounted,
                None => Doubt::None,
                Some(_) if is_open(&identifier) => Doubt::Open,
                Some(_) if has_other => Doubt::Code,
                Some(_) => Doubt::None,
            };
            if doubt != Doubt::None {
                found.push((identifier, doubt));
            }
        }
    }
    found
}

/// The height alone, without the number of a clone.
fn bytes(height: i64) -> i64 {
    CloneNumber::of_height(height).1
}

/// An identifier that was seen.
#[derive(Clone, Copy)]
struct Seen {
    identifier: Identifier,
    /// Its path, if it is meant to have one.
    only: Option<u32>,
    /// Whether no other path may have it, whichever clones calls lead to.
    is_alone: bool,
}

fn single(paths: &[u32]) -> Option<u32> {
    if let [only] = paths { Some(*only) } else { None }
}

/// Chains of calls that the code has, from contexts that were seen.
struct Chains<'m> {
    map: &'m PathMap,
    /// The procedures that each calls directly, with how far the stack grows: by ascending caller.
    callees: Vec<(u32, u32, i64)>,
    /// By procedure, how high the stack is at least where chains of calls lead there.
    least: FxHashMap<u32, i64>,
    /// By procedure and height, where no context was seen: whether a chain leads there.
    reached: FxHashMap<(u32, i64), bool>,
    /// Identifiers that more than one path leads to, as the map and the code know.
    unsure: FxHashSet<Identifier>,
    /// So many calls may still be looked at.
    left: usize,
}

impl<'m> Chains<'m> {
    fn of(map: &'m PathMap, left: usize) -> Chains<'m> {
        let grows = map.calls.iter().filter(|call| call.height > 0);
        // Clones call from frames of other sizes, too.
        let of_call = |call: &DirectCall| {
            let (caller, callee, height) = (call.caller, call.callee, call.height);
            let sizes = map.cloned.sizes_of(caller).into_iter();
            sizes.chain([0]).map(move |larger| (caller, callee, height.saturating_add(larger)))
        };
        let mut callees: Vec<(u32, u32, i64)> = grows.flat_map(of_call).collect();
        callees.sort_unstable();
        let (least, reached, unsure) = (FxHashMap::default(), FxHashMap::default(), FxHashSet::default());
        Chains { map, callees, least, reached, unsure, left }
    }

    /// What is asked next is of one stack, of which these are the identifiers.
    fn enter(&mut self, seen: &[Seen]) {
        (self.reached, self.least) = Default::default();
        let mut open: BinaryHeap<Reverse<(i64, u32)>> =
            seen.iter().map(|Seen { identifier: of, .. }| Reverse((of.bytes(), of.procedure))).collect();
        while let Some(Reverse((height, procedure))) = open.pop() {
            let least = self.least.entry(procedure).or_insert(i64::MAX);
            if *least <= height {
                continue;
            }
            *least = height;
            let from = self.callees.partition_point(|(caller, ..)| *caller < procedure);
            let called = self.callees[from..].iter().take_while(|(caller, ..)| *caller == procedure);
            let before = open.len();
            open.extend(called.map(|(_, callee, grows)| Reverse((height.saturating_add(*grows), *callee))));
            self.left = self.left.saturating_sub(open.len() - before);
            if self.left == 0 {
                return;
            }
        }
    }

    /// Whether there may be a path other than the one that was seen: also if no more calls may be looked at.
    fn has_other(&mut self, identifier: Identifier, only: u32) -> bool {
        let map = self.map;
        let parent = map.nodes.get(only as usize).and_then(|node| node.parent);
        let callers: Vec<Identifier> = map.direct_callers(identifier).take(self.left.saturating_add(1)).collect();
        let Some(left) = self.left.checked_sub(callers.len()) else { return true };
        self.left = left;
        if parent.is_some_and(|parent| self.is_entered_unsurely(identifier, parent, &callers)) {
            return true;
        }
        let mut known = parent;
        callers.into_iter().any(|by| match map.seen_paths(by) {
            [] => by.bytes() < identifier.bytes() && self.is_reached(by),
            seen => seen.iter().any(|caller| *known.get_or_insert(*caller) != *caller),
        })
    }

    /// Whether the caller on the path, at a height from which it makes this call, may have been entered by another path. `callers`: what has direct calls.
    fn is_entered_unsurely(&self, identifier: Identifier, parent: u32, callers: &[Identifier]) -> bool {
        let map = self.map;
        let Some(procedure) = map.nodes.get(parent as usize).map(|node| node.procedure) else { return false };
        let from = map.heights.partition_point(|(node, ..)| *node < parent);
        let heights = map.heights[from..].iter().take_while(|(node, ..)| *node == parent).map(|(_, height, _)| *height);
        // It calls from where its code says, or through a pointer from anywhere.
        let of_code = || callers.iter().filter(|by| by.procedure == procedure).map(|by| by.height);
        let calls_by_pointer = of_code().next().is_none();
        let may_call = |height: &i64| {
            bytes(*height) < identifier.bytes() && (calls_by_pointer || of_code().any(|own| own == *height))
        };
        heights.filter(may_call).any(|height| self.unsure.contains(&Identifier { procedure, height, ..identifier }))
    }

    /// Whether a chain of calls leads to where no context was seen.
    fn is_reached(&mut self, asked: Identifier) -> bool {
        let map = self.map;
        let mut open = vec![(asked, map.direct_callers(asked))];
        while let Some((at, callers)) = open.last_mut() {
            let at = *at;
            let Some(by) = callers.next() else {
                self.reached.insert((at.procedure, at.height), false);
                open.pop();
                continue;
            };
            let Some(next) = self.left.checked_sub(1) else { return true };
            self.left = next;
            let is_too_low = self.least.get(&by.procedure).is_none_or(|least| by.bytes() < *least);
            if by.bytes() >= at.bytes() || is_too_low {
                continue;
            }
            let known = match map.seen_paths(by) {
                [] => self.reached.get(&(by.procedure, by.height)).copied(),
                _ => Some(true),
            };
            match known {
                // Then it leads on to all that stand open.
                Some(true) => {
                    self.reached.extend(open.iter().map(|(at, _)| ((at.procedure, at.height), true)));
                    return true;
                }
                Some(false) => {}
                None => open.push((by, map.direct_callers(by))),
            }
        }
        false
    }
}

/// By stack and procedure, how high the stack is at least where the procedure was met at no known height: below calls at which the
/// stack is not as high each time, in handlers of signals.
fn open_from(map: &PathMap) -> FxHashMap<(u32, u32), i64> {
    /// Its return address.
    const LEAST_BYTES: i64 = 8;
    let mut known: Vec<Option<i64>> = vec![None; map.nodes.len()];
    for (node, height, _) in &map.heights {
        if let Some(known) = known.get_mut(*node as usize) {
            *known = Some(known.map_or(*height, |least| least.min(*height)));
        }
    }
    let mut open_from: FxHashMap<(u32, u32), i64> = FxHashMap::default();
    let mut least: Vec<i64> = Vec::with_capacity(map.nodes.len());
    for (at, (node, known)) in map.nodes.iter().zip(known).enumerate() {
        let above = node.parent.and_then(|parent| least.get(parent as usize)).copied();
        let from = known.unwrap_or_else(|| above.unwrap_or(0).saturating_add(LEAST_BYTES));
        if known.is_none() && !map.is_left_out(at) {
            let open = open_from.entry((node.root, node.procedure)).or_insert(from);
            *open = from.min(*open);
        }
        least.push(from);
    }
    open_from
}
