//! Which procedures of a file call which others of it by name, where both can run as copies: their calls can be led elsewhere.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::exports::Exports;
use callpath_image::plt;
use callpath_infer::MapModule;
use callpath_tables::call_graph::{Callee, module_calls};
use callpath_tables::copies::copyable;
use callpath_tables::graphs::with_flow;
use rustc_hash::FxHashSet;

use super::code::identity_bytes;
use crate::attribute::AttributeOptions;
use crate::exact::open;

/// The calls within a file: where the caller and what it calls begin, link-time addresses. What jumps to a procedure is not among them, nor
/// what calls it through a linkage table that the loader does not close when the program starts.
///
/// # Errors
/// If it cannot be read, or is another build: a sentence.
pub fn own_calls(of: &MapModule, options: &AttributeOptions) -> Result<FxHashSet<(u64, u64)>, String> {
    let names = open(std::slice::from_ref(&of.path), None, options);
    let Some(source) = names.structure_source().filter(|_| names.is_usable()) else {
        return Err(format!("{} cannot be read: none of its procedures are cloned", of.path.display()));
    };
    if identity_bytes(&source.module.image().identity()) != of.identity {
        return Err(format!(
            "{} is another build than the map's: none of its procedures are cloned",
            of.path.display()
        ));
    }
    let copyable: FxHashSet<u64> =
        copyable(&source.module).into_iter().filter(|of| of.refusal.is_none()).map(|of| of.entry.0).collect();
    let image = source.module.image();
    let closed = image.relocated_range().filter(|closed| plt::words(image).iter().all(|word| closed.contains(word)));
    // Another file may export the name, too, and come first: then what is led there is not called.
    let exports = closed.map_or_else(Exports::default, |_| Exports::of(image));
    let calls = with_flow(&source.module, |flow, _| module_calls(&source.module, flow));
    names.end_analysis();
    let stubs: Vec<Range<LinkAddr>> = plt::sections(image).into_iter().map(|section| section.code).collect();
    let named = |callee: &Callee| match callee {
        Callee::Named(name) => exports.named(name).iter().filter(|export| !export.chooses).collect(),
        _ => Vec::new(),
    };
    // A stub is a procedure that jumps.
    let through = |stub: LinkAddr| {
        let found = calls.procedures.binary_search_by_key(&stub, |of| of.entry).ok();
        let jumps = found.and_then(|index| calls.procedures.get(index)).map_or(&[][..], |of| &of.jumps);
        jumps.iter().flat_map(named).map(|export| export.start.0).collect::<Vec<u64>>()
    };
    let places = |callee: &Callee| match callee {
        Callee::Procedure(callee) if stubs.iter().any(|stubs| stubs.contains(callee)) => through(*callee),
        Callee::Procedure(callee) => vec![callee.0],
        other => named(other).into_iter().map(|export| export.start.0).collect(),
    };
    let of_callers = calls.procedures.iter().filter(|of| copyable.contains(&of.entry.0));
    let all = of_callers.flat_map(|of| of.calls.iter().map(|call| (of.entry.0, &call.callee)));
    let own = all.flat_map(|(caller, callee)| places(callee).into_iter().map(move |callee| (caller, callee)));
    Ok(own.filter(|(_, callee)| copyable.contains(callee)).collect())
}
