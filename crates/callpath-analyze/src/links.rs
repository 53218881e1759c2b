//! Whether a caller can have called its callee: the certificate of each step of a walk.
//! It must not look at samples.
//!
//! Tallent et al. 2009, section 2.3.2: a link is *valid* if a call of the callee precedes the return address, directly
//! or through the procedure linkage table; *likely* if a dynamically dispatched call does, or one of a procedure that
//! hands over to the callee by jumping, as far as that can be followed; *invalid* if none of these. Here also: the
//! frame of a signal handler's return and what it interrupted are valid, so is whatever began on the code that begins a
//! stack, and code that cannot be looked at makes a link likely.

use callpath_format::address::LinkAddr;
use callpath_image::exports::Export;
use callpath_image::symbols::Procedure;
use callpath_x86::call_site::{LONGEST_CALL_BYTES, Leaves, calls_before, leaves};
use callpath_x86::idioms::signal_return;
use rustc_hash::FxHashMap;

use crate::names::ModuleNames;

/// Procedures that are followed from one call; what hands over to more can hand over to anything.
const MOST_FOLLOWED: usize = 64;

/// How sure a link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rating {
    Valid,
    Likely,
    Invalid,
}

/// The modules of the measurement, by their numbers.
pub(crate) trait Modules {
    fn count(&self) -> usize;
    /// `None`: it cannot be looked at, or no sample hit it.
    fn names(&self, module: usize) -> Option<&ModuleNames>;
    /// The procedures of this name that it offers to others, hit or not. `None`: it cannot be looked at.
    fn exports(&self, module: usize, name: &str) -> Option<&[Export]>;
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Frame {
    /// Its module's number.
    pub(crate) module: usize,
    /// Its look-up address.
    pub(crate) address: LinkAddr,
}

/// Ratings of links, by caller and callee.
pub(crate) type Ratings = FxHashMap<(Frame, Frame), Rating>;

/// Rates links, each once.
#[derive(Default)]
pub(crate) struct LinkRater {
    ratings: Ratings,
    /// Of the callee the start of its procedure.
    by_procedure: Ratings,
    leaves: FxHashMap<(usize, LinkAddr), Leaves>,
}

impl LinkRater {
    /// Links that were rated before keep their ratings.
    pub(crate) fn with(ratings: Ratings) -> LinkRater {
        LinkRater { ratings, ..LinkRater::default() }
    }

    /// All that were rated.
    pub(crate) fn ratings(&self) -> &Ratings {
        &self.ratings
    }

    /// Whether `caller` (a call site) can have called `callee`.
    pub(crate) fn rate(&mut self, modules: &impl Modules, caller: Frame, callee: Frame) -> Rating {
        if let Some(rating) = self.ratings.get(&(caller, callee)) {
            return *rating;
        }
        let rating = self.of_procedure(modules, caller, callee);
        self.ratings.insert((caller, callee), rating);
        rating
    }

    fn of_procedure(&mut self, modules: &impl Modules, caller: Frame, callee: Frame) -> Rating {
        // All places of a procedure are called in the same way.
        let start = modules.names(callee.module).and_then(|n| n.bounds(callee.address));
        let start = start.map_or(callee.address, |procedure| procedure.start);
        let key = (caller, Frame { address: start, ..callee });
        if let Some(rating) = self.by_procedure.get(&key) {
            return *rating;
        }
        let rating = self.decide(modules, caller, callee);
        self.by_procedure.insert(key, rating);
        rating
    }

    fn decide(&mut self, modules: &impl Modules, caller: Frame, callee: Frame) -> Rating {
        let Some(names) = modules.names(caller.module).filter(|n| n.is_usable()) else { return Rating::Likely };
        if is_signal_return(names, caller) || modules.names(callee.module).is_some_and(|n| is_signal_return(n, callee))
        {
            return Rating::Valid;
        }
        let return_address = LinkAddr(caller.address.0.wrapping_add(1));
        let before = (2..=LONGEST_CALL_BYTES)
            .rev()
            .find_map(|len| names.bytes(LinkAddr(return_address.0.wrapping_sub(len as u64)), len));
        let Some(before) = before else { return Rating::Likely };
        let calls = calls_before(before, return_address);
        let direct = calls.direct.map(|target| self.direct(modules, Frame { address: target, ..caller }, callee));
        match direct {
            Some(rating @ (Rating::Valid | Rating::Likely)) => rating,
            _ if calls.dynamic => Rating::Likely,
            // No call has put its address there.
            _ if names.begins_stack(caller.address) => Rating::Valid,
            _ => Rating::Invalid,
        }
    }

    /// A call of `target`: what it leads to, from procedure to procedure.
    fn direct(&mut self, modules: &impl Modules, target: Frame, callee: Frame) -> Rating {
        let callee_name = modules.names(callee.module).and_then(|n| n.bounds(callee.address)).and_then(|p| p.name);
        // Each with whether a call leads there by itself, or through the linkage table.
        let mut reached = vec![(target, true)];
        let mut next = 0;
        let mut without_exceptions = 0;
        loop {
            let Some(&(place, is_called)) = reached.get(next) else {
                // The landing pads where it continues after an exception, which may be in another part of it.
                let landings = landings_of(modules, &reached[without_exceptions..]);
                without_exceptions = reached.len();
                landings.into_iter().for_each(|place| add(&mut reached, place, false));
                if reached.len() == without_exceptions {
                    return Rating::Invalid;
                }
                continue;
            };
            next += 1;
            let Some(names) = modules.names(place.module) else { return Rating::Likely };
            let Some(procedure) = names.bounds(place.address) else { return Rating::Likely };
            let same_module = place.module == callee.module;
            let is_in = |procedure: &Procedure<'_>| {
                same_module
                    && callee.address.0.checked_sub(procedure.start.0).is_some_and(|at| at < procedure.len.max(1))
            };
            if is_in(&procedure) {
                return if is_called { Rating::Valid } else { Rating::Likely };
            }
            if let Some(stub) = procedure.name.and_then(|n| n.strip_suffix("@plt")) {
                if callee_name == Some(stub) {
                    return if is_called { Rating::Valid } else { Rating::Likely };
                }
                if same_module && names.is_in_linkage_table(callee.address) {
                    return Rating::Likely;
                }
                match bound_to(modules, stub, callee) {
                    Some(bound) => bound.into_iter().for_each(|place| add(&mut reached, place, is_called)),
                    None => return Rating::Likely,
                }
            } else {
                let key = (place.module, procedure.start);
                let leaves = self.leaves.entry(key).or_insert_with(|| {
                    let code = usize::try_from(procedure.len).ok().and_then(|len| names.bytes(procedure.start, len));
                    code.map_or(Leaves { anywhere: true, ..Leaves::default() }, |code| leaves(code, procedure.start))
                });
                // A procedure that ends in a call continues in the next procedure if the
                // call returns. Most do not: not followed.
                let next_one = leaves.behind_last_call.and_then(|at| names.bounds(at));
                if leaves.anywhere || next_one.as_ref().is_some_and(is_in) {
                    return Rating::Likely;
                }
                leaves.to.iter().for_each(|to| add(&mut reached, Frame { address: *to, ..place }, false));
            }
            if reached.len() > MOST_FOLLOWED {
                return Rating::Likely;
            }
        }
    }
}

fn add(reached: &mut Vec<(Frame, bool)>, place: Frame, is_called: bool) {
    if !reached.iter().any(|(known, _)| *known == place) {
        reached.push((place, is_called));
    }
}

/// Where exceptions of calls in these procedures land.
fn landings_of(modules: &impl Modules, reached: &[(Frame, bool)]) -> Vec<Frame> {
    let of = |place: &Frame| {
        let names = modules.names(place.module)?;
        let procedure = names.bounds(place.address)?;
        let end = LinkAddr(procedure.start.0.saturating_add(procedure.len));
        let module = place.module;
        Some(names.landings(procedure.start..end).map(move |address| Frame { module, address }))
    };
    reached.iter().filter_map(|(place, _)| of(place)).flatten().collect()
}

/// What a name of the linkage table can be bound to. `None`: that is not known, or the name's own procedure chooses
/// (memcpy, for one), or `callee` is the loader's, which binds it.
fn bound_to(modules: &impl Modules, name: &str, callee: Frame) -> Option<Vec<Frame>> {
    let is_loader = |names: &ModuleNames| !names.exports("__tls_get_addr").is_empty();
    if modules.names(callee.module).is_some_and(is_loader) {
        return None;
    }
    let mut bound = Vec::new();
    for module in 0..modules.count() {
        let exports = modules.exports(module, name)?;
        if exports.iter().any(|export| export.chooses) {
            return None;
        }
        bound.extend(exports.iter().map(|export| Frame { module, address: export.start }));
    }
    (!bound.is_empty()).then_some(bound)
}

/// Whether the frame is where a signal handler returns to. What called it is the kernel, and what
/// it returns to was interrupted.
fn is_signal_return(names: &ModuleNames, frame: Frame) -> bool {
    signal_return::holds(frame.address, |at, len| names.bytes(at, len))
}
