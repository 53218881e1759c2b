//! Clones for a program that runs as copies: as many of its calls as can lead to some.

use std::collections::BTreeSet;

use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use callpath_tables::copies::{CloneCaller, WantedClone, behind, copy_all};
use callpath_tables::module::Module;
use callpath_x86::rewrite::{Callee, Plan, callee};

/// A clone of each procedure for each one that calls it by name, as many as a module may have: whichever clone of that calls.
pub(super) fn clones_of_calls(module: &Module) -> Vec<WantedClone> {
    const MOST: u16 = 4000;
    let mut calls: BTreeSet<(LinkAddr, LinkAddr)> = BTreeSet::new();
    copy_all(module, behind(module.image()), |flow, graph| {
        let named = graph.calls.iter().filter_map(|call| callee(flow, call));
        calls.extend(named.filter_map(|callee| match callee {
            Callee::At(callee) => Some((graph.entry, callee)),
            _ => None,
        }));
        Plan::default()
    });
    let numbered: Vec<(CloneNumber, (LinkAddr, LinkAddr))> = (1..=MOST).map(CloneNumber).zip(calls).collect();
    let wanted = numbered.iter().map(|&(number, (caller, of))| {
        let of_caller = numbered.iter().filter(|(_, (_, of))| *of == caller);
        let of_caller = of_caller.map(|(number, _)| CloneCaller::Clone(*number));
        let callers = [CloneCaller::Procedure(caller)].into_iter().chain(of_caller).collect();
        // Some frames are smaller than that of the procedure's own copy, some are as large, some are larger.
        let bytes = u32::from(number.0 % 4) * 16;
        WantedClone { number, of, callers, is_called_from_outside: false, bytes }
    });
    wanted.collect()
}
