//! The unwinder of the compiler's library where it is linked into a module, which need not have names: its entries take their
//! return address for no more than a place to unwind from.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::plt;
use callpath_x86::references::leads_to;
use rustc_hash::FxHashSet;

use crate::calls_in_copies::FIND_OBJECT;
use crate::module::Module;

/// How many calls lie between what all entries (`_Unwind_RaiseException`) begin with, the frame that they find themselves in
/// (`uw_init_context_1`), and [`FIND_OBJECT`]: that takes a description of the procedure (`uw_frame_state_for`), which is
/// searched (`_Unwind_Find_FDE`).
const CALLS: usize = 3;
/// So many entries begin with it, at least: five are in one object of the compiler's library.
const ENTRIES: usize = 4;

/// Which of `users`, procedures that look at their return address, are entries of an unwinder that is linked into their
/// module, with code at `procedures`.
pub(crate) fn entries(module: &Module, procedures: &[Range<LinkAddr>], users: &FxHashSet<LinkAddr>) -> Vec<LinkAddr> {
    let (image, loading) = (module.image(), module.file().loading());
    let is_it = |name: &str| name.trim_end_matches("@plt").split('@').next() == Some(FIND_OBJECT);
    let slots = loading.symbols.iter().filter(|(_, name)| is_it(name)).map(|(slot, _)| *slot);
    let mut last: FxHashSet<LinkAddr> = slots.collect();
    if last.is_empty() || users.len() < ENTRIES {
        return Vec::new();
    }
    let stubs = plt::stubs(image, |_| None).into_iter().filter(|stub| is_it(&stub.name));
    last.extend(stubs.map(|stub| stub.start));
    let stub_sections = plt::sections(image);
    let is_stub = |at: LinkAddr| stub_sections.iter().any(|stubs| stubs.code.contains(&at));
    let leads = |code: &Range<LinkAddr>, targets: &FxHashSet<LinkAddr>| {
        let bytes = image.bytes_at(code.start, code.end.0.saturating_sub(code.start.0) as usize);
        bytes.is_some_and(|bytes| leads_to(bytes, code.start, targets))
    };
    let mut seen = last.clone();
    for _ in 0..CALLS {
        let new = procedures.iter().filter(|code| !is_stub(code.start) && !seen.contains(&code.start));
        last = new.filter(|code| leads(code, &last)).map(|code| code.start).collect();
        seen.extend(&last);
    }
    let of_users: Vec<&Range<LinkAddr>> = procedures.iter().filter(|code| users.contains(&code.start)).collect();
    let mut found = Vec::new();
    for first in last {
        let target = FxHashSet::from_iter([first]);
        let callers = of_users.iter().filter(|code| leads(code, &target)).map(|code| code.start);
        let callers: Vec<LinkAddr> = callers.collect();
        if callers.len() >= ENTRIES {
            found.extend(callers);
        }
    }
    found
}
